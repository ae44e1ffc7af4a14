#include "control/metrics_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/dict_fields.h"
#include "base/json.h"
#include "base/log.h"
#include "storage/local_files.h"
#include "storage/run_names.h"

namespace trireme::control {
namespace {

// RFC 4180: cells with separators are quoted.
std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string text_of_value(const Value& value) {
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* number = value.get_if<double>(); number && !std::isfinite(*number)) return fmt::format("{}", *number);
  return value.is_null() ? "" : base::to_json(value);
}

void flatten(const Dict& metrics, const std::string& prefix, std::vector<std::pair<std::string, std::string>>& row) {
  for (const auto& [key, value] : metrics) {
    if (const Dict* inner = value.get_if<Dict>()) {
      flatten(*inner, prefix + key + "/", row);
    } else {
      row.emplace_back(prefix + key, text_of_value(value));
    }
  }
}

std::string join_cells(const std::vector<std::string>& cells) {
  std::string line;
  for (const auto& each : cells) line += cell(each) + ',';
  line.back() = '\n';
  return line;
}

// The column names, and the offset of the first row.
std::pair<std::vector<std::string>, std::size_t> read_header(const std::string& table) {
  std::vector<std::string> columns;
  std::string name;
  bool quoted = false;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const char c = table[i];
    if (c == '"' && quoted && i + 1 < table.size() && table[i + 1] == '"') {
      name += table[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == ',' || c == '\n')) {
      columns.push_back(std::exchange(name, ""));
      if (c == '\n') return {std::move(columns), i + 1};
    } else {
      name += c;
    }
  }
  return {{}, table.size()};
}

// Writes all of it or, if the disk is full, nothing. Completes an incomplete line left by a crash first.
base::Result<void> append_to(const std::string& path, std::string content) {
  base::Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file.valid()) return base::system_error(fmt::format("could not open {}", path), errno);
  const off_t size = ::lseek(file.get(), 0, SEEK_END);
  char last = '\n';
  if (size > 0 && ::pread(file.get(), &last, 1, size - 1) == 1 && last != '\n') content.insert(0, 1, '\n');
  for (std::string_view rest = content; !rest.empty();) {
    const ssize_t count = ::write(file.get(), rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int failure = errno;
      if (::ftruncate(file.get(), size) != 0) base::log_warning("{} ends with an incomplete line", path);
      return base::system_error(fmt::format("could not write {}", path), failure);
    }
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

}  // namespace

void MetricsFiles::append(const Dict& report) {
  Dict line{{"step", base::int_of(report, "index")}, {"time", base::number_of(report, "time")}};
  line["attempt"] = base::int_of(report, "attempt");
  Row row;
  for (const auto& [key, value] : line) row.emplace_back(key, text_of_value(value));
  if (const Dict* metrics = base::dict_of(report, "metrics")) {
    for (const auto& [key, value] : *metrics) {
      if (!line.contains(key)) line[key] = value;
    }
    flatten(*metrics, "", row);
  }
  base::append_json(lines_, line);
  lines_ += '\n';
  rows_.push_back(std::move(row));
}

base::Result<void> MetricsFiles::flush() {
  if (rows_.empty()) return {};
  TRIREME_TRY(append_to(folder_ + "/" + storage::kMetricsLines, lines_));
  lines_.clear();
  TRIREME_TRY(read_columns());
  TRIREME_TRY(widen());
  std::string table;
  for (const auto& row : rows_) {
    std::vector<std::string> cells(columns_.size());
    // Of two columns with the same name the first wins: step, time and attempt are ours.
    for (auto it = row.rbegin(); it != row.rend(); ++it) {
      const auto column = std::find(columns_.begin(), columns_.end(), it->first);
      cells[static_cast<std::size_t>(column - columns_.begin())] = it->second;
    }
    table += join_cells(cells);
  }
  TRIREME_TRY(append_to(folder_ + "/" + storage::kMetricsTable, std::move(table)));
  rows_.clear();
  return {};
}

void MetricsFiles::drop() {
  lines_.clear();
  rows_.clear();
}

// An earlier start of the run may have created the table.
base::Result<void> MetricsFiles::read_columns() {
  if (columns_known_) return {};
  const std::string path = folder_ + "/" + storage::kMetricsTable;
  if (std::filesystem::exists(path)) {
    TRIREME_ASSIGN(auto table, storage::read_file(path));
    columns_ = read_header(table).first;
  }
  columns_known_ = true;
  return {};
}

base::Result<void> MetricsFiles::widen() {
  std::vector<std::string> columns = columns_;
  for (const auto& row : rows_) {
    for (const auto& [name, value] : row) {
      if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
    }
  }
  if (columns.size() == columns_.size()) return {};
  const std::string path = folder_ + "/" + storage::kMetricsTable;
  std::string table = join_cells(columns);
  if (!columns_.empty()) {
    TRIREME_ASSIGN(auto old, storage::read_file(path));
    const std::string padding(columns.size() - columns_.size(), ',');
    bool quoted = false;
    for (char c : std::string_view(old).substr(read_header(old).second)) {
      if (c == '"') quoted = !quoted;
      if (c == '\n' && !quoted) table += padding;
      table += c;
    }
  }
  TRIREME_TRY(storage::write_file_atomically(path, table));
  columns_ = std::move(columns);
  return {};
}

}  // namespace trireme::control
