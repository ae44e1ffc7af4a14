#include "data/digest_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/json.h"

namespace trireme::data {

base::Result<std::unique_ptr<DigestLog>> DigestLog::open(const std::string& folder, const DigestContext& context,
                                                         const Layout& layout) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) return base::error("could not make {}: {}", folder, failed.message());
  const std::string laid_out = fmt::format("{}/{}.json", folder, context.dataset);
  if (context.rank == 0 && !std::filesystem::exists(laid_out)) {
    List rows;
    for (std::int64_t each : layout.fragment_rows) rows.emplace_back(each);
    std::ofstream(laid_out) << base::to_json(Dict{{"fragment_rows", std::move(rows)},
                                                  {"shuffle_fragments", layout.shuffle_fragments}})
                            << "\n";
    if (!std::filesystem::exists(laid_out)) return base::error("could not write {}", laid_out);
  }
  std::string path = fmt::format("{}/{}.{}.jsonl", folder, context.dataset, context.rank);
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return base::system_error("open " + path, errno);
  return std::unique_ptr<DigestLog>(new DigestLog(file, std::move(path), context));
}

DigestLog::~DigestLog() {
  cut();
  ::close(file_);
}

void DigestLog::begin(std::int64_t epoch, const Layout& layout) {
  cut();
  epoch_ = epoch;
  seed_ = layout.seed;
  virtual_shards_ = layout.virtual_shards;
  window_rows_ = layout.window_rows;
}

void DigestLog::add(Span span, std::int64_t rows, std::uint64_t digest) {
  if (span_.size() == 0) span_.begin = span.begin;
  span_.end = span.end;
  rows_ += rows;
  digest_ += digest;
}

void DigestLog::cut() {
  if (span_.size() == 0) return;
  const std::string line = base::to_json(Dict{{"epoch", epoch_},
                                              {"begin", span_.begin},
                                              {"end", span_.end},
                                              {"rank", context_.rank},
                                              {"world", context_.world},
                                              {"attempt", context_.attempt},
                                              {"whole", context_.whole},
                                              {"rows", rows_},
                                              {"digest", static_cast<std::int64_t>(digest_)},
                                              {"seed", static_cast<std::int64_t>(seed_)},
                                              {"virtual_shards", virtual_shards_},
                                              {"window_rows", window_rows_}}) +
                           "\n";
  span_ = {};
  rows_ = 0;
  digest_ = 0;
  // One call: a line is there as a whole or not at all, whenever the process is killed.
  const off_t before = ::lseek(file_, 0, SEEK_END);
  const ssize_t written = ::write(file_, line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size())) return;
  const int why = written < 0 ? errno : ENOSPC;
  const bool whole = written <= 0 || ::ftruncate(file_, before) == 0;  // half a line would spoil those after it
  if (failed_ && whole) return;
  failed_ = true;
  std::fprintf(stderr, "trireme: could not write %s: %s; `trireme data verify` will miss rows\n", path_.c_str(),
               std::strerror(why));
}

}  // namespace trireme::data
