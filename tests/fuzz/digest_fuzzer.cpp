#include <filesystem>
#include <fstream>

#include "data/digest_log.h"
#include "data/digest_verify.h"
#include "data/pipeline.h"
#include "fuzz/fuzzer.h"
#include "unit/temp_dir.h"

using namespace trireme;
using namespace trireme::data;

// The log of samples of a run: the layout in the first line, then the lines of rank 0.

namespace {

void write_file(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What a rank writes that takes all rows of two epochs in two stretches each.
std::string written(const Layout& layout) {
  const tests::TempDir folder;
  const std::int64_t rows = Order(layout, 0).rows();
  {
    auto log = DigestLog::open(folder.path().string(), {.dataset = "train"}, layout).value();
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      log->begin(epoch, layout);
      for (const Span span : {Span{0, rows / 3}, Span{rows / 3, rows}}) {
        log->add(span, span.size(), expected_digest(layout, epoch, span));
        log->cut();
      }
    }
  }
  std::string head = read_file(folder / "train.json");
  std::replace(head.begin(), head.end(), '\n', ' ');
  return head + "\n" + read_file(folder / "train.0.jsonl");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tests::TempDir folder;
  const std::string_view text = as_text(data, size);
  const std::size_t line = std::min(text.find('\n'), text.size());
  write_file(folder / "train.json", text.substr(0, line));
  write_file(folder / "train.0.jsonl", text.substr(std::min(line + 1, text.size())));
  const auto verdicts = verify_digests(folder.path().string());
  if (!verdicts) {
    expect(!verdicts.error().message().empty(), "a refusal has a reason");
    return 0;
  }
  for (const auto& verdict : *verdicts) {
    expect(!verdict.problem.empty() || verdict.seen <= verdict.size, "an epoch that is right has its own rows");
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  Layout plain{.fragment_rows = {5, 0, 7}};
  Layout shuffled{.fragment_rows = {4, 9, 3, 6}};
  shuffled.shuffle_fragments = true;
  shuffled.virtual_shards = 3;
  shuffled.window_rows = 4;
  shuffled.seed = 11;
  return {written(plain), written(shuffled), "{}\n{}\n", ""};
}
