#include "data/digest_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/json.h"
#include "data/random.h"
#include "storage/local_files.h"

namespace trireme::data {

std::string fragments_id(const Layout& layout) {
  std::uint64_t id = layout.fragment_rows.size();
  for (std::int64_t rows : layout.fragment_rows) id = mixed(id ^ static_cast<std::uint64_t>(rows));
  return fmt::format("{:016x}", id);
}

base::Result<std::unique_ptr<DigestLog>> DigestLog::open(const std::string& folder, const DigestContext& context,
                                                         const Layout& layout) {
  TRIREME_TRY(storage::make_folder(folder));
  std::string fragments = fragments_id(layout);
  const std::string laid_out = fmt::format("{}/{}.{}.json", folder, context.dataset, fragments);
  if (!std::filesystem::exists(laid_out)) {  // ranks that write it concurrently write the same content
    List rows;
    for (std::int64_t each : layout.fragment_rows) rows.emplace_back(each);
    TRIREME_TRY(
        storage::write_file_atomically(laid_out, base::to_json(Dict{{"fragment_rows", std::move(rows)}}) + "\n"));
  }
  return open_file(folder, context, std::move(fragments));
}

base::Result<void> DigestLog::finish_unused(const std::string& folder, const DigestContext& context, std::int64_t epoch,
                                            std::int64_t row) {
  TRIREME_TRY(storage::make_folder(folder));
  TRIREME_ASSIGN(const auto log, open_file(folder, context, ""));
  log->finish(epoch, row);
  return {};
}

base::Result<std::unique_ptr<DigestLog>> DigestLog::open_file(const std::string& folder, const DigestContext& context,
                                                              std::string fragments) {
  std::string path = fmt::format("{}/{}.{}.jsonl", folder, context.dataset, context.rank);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return base::system_error("open " + path, errno);
  return std::unique_ptr<DigestLog>(new DigestLog(file, std::move(path), context, std::move(fragments)));
}

DigestLog::DigestLog(int file, std::string path, DigestContext context, std::string fragments)
    : file_(file),
      path_(std::move(path)),
      context_(std::move(context)),
      fragments_(std::move(fragments)),
      process_(::getpid()) {}

DigestLog::~DigestLog() {
  cut();
  ::close(file_);
}

void DigestLog::begin(const PassStart& start) {
  end(false);
  ++pass_;
  in_pass_ = true;
  const Layout& layout = start.layout;
  write({{"kind", "pass"},
         {"attempt", context_.attempt},
         {"pass", pass_},
         {"rank", context_.rank},
         {"world", context_.world},
         {"whole", context_.whole},
         {"epoch", start.epoch},
         {"begin", start.begin},
         {"loaded", start.loaded},
         {"fragments", fragments_},
         {"shuffle_fragments", layout.shuffle_fragments},
         {"seed", static_cast<std::int64_t>(layout.seed)},
         {"virtual_shards", layout.virtual_shards},
         {"window_rows", layout.window_rows},
         {"batch_rows", start.cutting.batch_rows},
         {"max_world", start.cutting.max_world},
         {"drop_last", start.cutting.drop_last},
         {"pad_last", start.cutting.pad},
         {"equal", start.cutting.equal}});
  span_ = {start.begin, start.begin};
}

void DigestLog::add(Span span, std::int64_t rows, std::uint64_t digest) {
  span_.end = span.end;
  rows_ += rows;
  digest_ += digest;
}

void DigestLog::cut() {
  if (span_.size() == 0) return;
  write({{"kind", "rows"},
         {"attempt", context_.attempt},
         {"pass", pass_},
         {"begin", span_.begin},
         {"end", span_.end},
         {"rows", rows_},
         {"digest", static_cast<std::int64_t>(digest_)}});
  span_.begin = span_.end;
  logged_rows_ += rows_;
  rows_ = 0;
  digest_ = 0;
}

void DigestLog::end(bool over) {
  if (!in_pass_) return;
  cut();
  in_pass_ = false;
  write({{"kind", "end"}, {"attempt", context_.attempt}, {"pass", pass_}, {"at", span_.end}, {"over", over}});
}

void DigestLog::finish(std::int64_t epoch, std::int64_t row) {
  end(false);
  write({{"kind", "finished"}, {"attempt", context_.attempt}, {"epoch", epoch}, {"row", row}});
}

void DigestLog::write(const Dict& line) {
  if (::getpid() != process_) return;  // a forked child has a copy of the lines that its parent will write
  const std::string text = base::to_json(line) + "\n";
  // One call: if the process is killed, the line is complete or missing.
  const off_t before = ::lseek(file_, 0, SEEK_END);
  const ssize_t written = ::write(file_, text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return;
  const int why = written < 0 ? errno : ENOSPC;
  const bool whole = written <= 0 || ::ftruncate(file_, before) == 0;  // a partial line would corrupt the next ones
  if (failed_ && whole) return;
  failed_ = true;
  std::fprintf(stderr, "trireme: could not write %s: %s; `trireme data verify` will miss rows\n", path_.c_str(),
               std::strerror(why));
}

}  // namespace trireme::data
