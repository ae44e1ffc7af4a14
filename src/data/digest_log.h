#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "data/order.h"
#include "data/steps.h"
#include "trireme/value.h"

// A rank's log of the rows it consumed. `trireme data verify` uses it to prove that each row was consumed once. The log
// has a JSON line at the start of a pass over an epoch, one per stretch between two reports, and one at its end.

namespace trireme::data {

// Fields common to all lines of a log.
struct DigestContext {
  std::string dataset;
  int rank = 0;
  int world = 1;
  int attempt = 0;
  bool whole = false;  // every rank sees all rows
};

// Everything that determines the rows of a pass.
struct PassStart {
  std::int64_t epoch = 0;
  std::int64_t begin = 0;  // the first row, in the epoch
  bool loaded = false;     // the position was passed to load_state()
  Layout layout;
  Cutting cutting;
};

// Identifies the layout's fragments: equal in every process with the same fragments.
std::string fragments_id(const Layout& layout);

class DigestLog {
 public:
  // Appends to folder/<dataset>.<rank>.jsonl, and writes folder/<dataset>.<fragments_id>.json if it does not exist.
  static base::Result<std::unique_ptr<DigestLog>> open(const std::string& folder, const DigestContext& context,
                                                       const Layout& layout);
  // For a dataset that the training function did not request: records that it finished at its old position.
  static base::Result<void> finish_unused(const std::string& folder, const DigestContext& context, std::int64_t epoch,
                                          std::int64_t row);
  ~DigestLog();
  DigestLog(const DigestLog&) = delete;
  DigestLog& operator=(const DigestLog&) = delete;

  // Disk errors are reported once, on stderr: they must not end a run.

  // Starts a pass; the previous one has ended.
  void begin(const PassStart& start);
  // Rows of a global batch that this rank delivered to the user.
  void add(Span span, std::int64_t rows, std::uint64_t digest);
  // Writes the current stretch.
  void cut();
  // Ends the pass: after its last step (`over`), or where the user left it. Repeated calls have no effect.
  void end(bool over);
  // The training function has returned, and the next pass would start here: this is the last line.
  void finish(std::int64_t epoch, std::int64_t row);

  // Rows in the lines so far, even if the disk has refused some of them.
  std::int64_t rows() const { return logged_rows_; }

 private:
  DigestLog(int file, std::string path, DigestContext context, std::string fragments);

  static base::Result<std::unique_ptr<DigestLog>> open_file(const std::string& folder, const DigestContext& context,
                                                            std::string fragments);
  void write(const Dict& line);

  int file_;
  std::string path_;
  DigestContext context_;
  std::string fragments_;  // ID of the fragments
  int process_;
  bool failed_ = false;
  std::int64_t pass_ = -1;  // number of the current pass
  bool in_pass_ = false;
  // The stretch that is not yet written.
  Span span_;
  std::int64_t rows_ = 0;
  std::uint64_t digest_ = 0;
  std::int64_t logged_rows_ = 0;
};

}  // namespace trireme::data
