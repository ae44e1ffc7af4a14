#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "data/order.h"
#include "data/steps.h"
#include "trireme/value.h"

// What a rank logs about the rows that it has taken, so that `trireme data verify` can prove that each was seen once:
// a JSON line where a pass over an epoch begins, one for each stretch between two reports, and one where the pass ends.

namespace trireme::data {

// What all lines of a log have in common.
struct DigestContext {
  std::string dataset;
  int rank = 0;
  int world = 1;
  int attempt = 0;
  bool whole = false;  // every rank sees all rows
};

// All that the rows of a pass follow from.
struct PassStart {
  std::int64_t epoch = 0;
  std::int64_t begin = 0;  // the epoch's row
  bool loaded = false;     // the position was given to load_state()
  Layout layout;
  Cutting cutting;
};

// Names the layout's fragments: the same in every process that has the same ones.
std::string fragments_id(const Layout& layout);

class DigestLog {
 public:
  // Appends to folder/<dataset>.<rank>.jsonl, and writes folder/<dataset>.<fragments_id>.json where it is absent.
  static base::Result<std::unique_ptr<DigestLog>> open(const std::string& folder, const DigestContext& context,
                                                       const Layout& layout);
  // For a dataset that the training function has not asked for: it has finished with the data at its old position.
  static base::Result<void> finish_unused(const std::string& folder, const DigestContext& context, std::int64_t epoch,
                                          std::int64_t row);
  ~DigestLog();
  DigestLog(const DigestLog&) = delete;
  DigestLog& operator=(const DigestLog&) = delete;

  // Disk errors are reported once, on stderr: they must not end a training.

  // A pass begins; the one before has ended.
  void begin(const PassStart& start);
  // Rows of a global batch that this rank has given to its user.
  void add(Span span, std::int64_t rows, std::uint64_t digest);
  // Writes the stretch so far.
  void cut();
  // The pass ends: after its last step (`over`), or where the user has left it. Once for each pass; more do nothing.
  void end(bool over);
  // The training function has returned, with the next pass to begin there: no more will come.
  void finish(std::int64_t epoch, std::int64_t row);

 private:
  DigestLog(int file, std::string path, DigestContext context, std::string fragments);

  static base::Result<std::unique_ptr<DigestLog>> open_file(const std::string& folder, const DigestContext& context,
                                                            std::string fragments);
  void write(const Dict& line);

  int file_;
  std::string path_;
  DigestContext context_;
  std::string fragments_;  // their id
  int process_;
  bool failed_ = false;
  std::int64_t pass_ = -1;  // counts them
  bool in_pass_ = false;
  // The stretch that is not written yet.
  Span span_;
  std::int64_t rows_ = 0;
  std::uint64_t digest_ = 0;
};

}  // namespace trireme::data
