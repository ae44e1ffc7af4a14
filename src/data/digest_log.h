#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "data/order.h"
#include "data/steps.h"

// What a rank logs about the rows that it has taken, so that `trireme data verify` can prove that each was seen once:
// one JSON line per stretch of an epoch between two checkpoints, and beside it how the dataset is laid out.

namespace trireme::data {

// What the rows of a stretch have in common.
struct DigestContext {
  std::string dataset;
  int rank = 0;
  int world = 1;
  int attempt = 0;
  bool whole = false;  // every rank sees all rows
};

class DigestLog {
 public:
  // Appends to folder/<dataset>.<rank>.jsonl, and writes folder/<dataset>.json where there is none.
  static base::Result<std::unique_ptr<DigestLog>> open(const std::string& folder, const DigestContext& context,
                                                       const Layout& layout);
  ~DigestLog();
  DigestLog(const DigestLog&) = delete;
  DigestLog& operator=(const DigestLog&) = delete;

  // An epoch, or the rest of one, is begun in this order.
  void begin(std::int64_t epoch, const Layout& layout);
  // Rows of a global batch that this rank has given to its user.
  void add(Span span, std::int64_t rows, std::uint64_t digest);
  // Writes the stretch so far. Disk errors are told once, on stderr: they must not end a training.
  void cut();

 private:
  DigestLog(int file, std::string path, DigestContext context)
      : file_(file), path_(std::move(path)), context_(std::move(context)) {}

  int file_;
  std::string path_;
  DigestContext context_;
  bool failed_ = false;
  // The stretch that is not written yet.
  std::int64_t epoch_ = 0;
  std::uint64_t seed_ = 0;
  std::int64_t virtual_shards_ = 1;
  std::int64_t window_rows_ = 0;
  Span span_;
  std::int64_t rows_ = 0;
  std::uint64_t digest_ = 0;
};

}  // namespace trireme::data
