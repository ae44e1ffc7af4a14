#include <filesystem>
#include <fstream>

#include "data/digest_log.h"
#include "data/digest_verify.h"
#include "data/pipeline.h"
#include "data/sample_order.h"
#include "fuzz/fuzzer.h"
#include "unit/temp_dir.h"

namespace digest_fuzzer {

using namespace trireme;
using namespace trireme::data;

// The sample log of a run: the fragments in the first line, then the lines of rank 0.

namespace {

void write_file(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The log of a rank that takes all rows of two epochs, with a report in the middle.
std::string written(const Layout& layout) {
  const tests::TempDir folder;
  {
    auto log = DigestLog::open(folder.path().string(), {.dataset = "train"}, layout).value();
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      const Cutting cutting{.batch_rows = 4};
      const Steps steps = Steps::cut(Order(layout, 0).rows(), 0, cutting).value();
      SampleOrder order(layout, epoch);
      log->begin({epoch, 0, false, layout, cutting});
      for (std::int64_t step = 0; step < steps.count(); ++step) {
        std::int64_t slot = steps[step].begin;
        std::uint64_t digest = 0;
        for (const auto& part : share(steps[step], layout.virtual_shards, 0, 1)) {
          order.each(part, [&](std::int64_t sample) { digest += row_digest(slot++, sample); });
        }
        log->add(steps[step], steps[step].size(), digest);
        if (step == 1) log->cut();
      }
      log->end(true);
    }
    log->finish(2, 0);
  }
  std::string head = read_file(folder / ("train." + fragments_id(layout) + ".json"));
  std::replace(head.begin(), head.end(), '\n', ' ');
  return head + "\n" + read_file(folder / "train.0.jsonl");
}

// The id of the fragments that the lines name.
std::string fragments_in(std::string_view lines) {
  constexpr std::string_view kKey = "\"fragments\":\"";
  const std::size_t at = lines.find(kKey);
  std::string found(at == lines.npos ? "" : lines.substr(at + kKey.size(), 16));
  return found.find_first_not_of("0123456789abcdef") == found.npos ? found : "";
}

}  // namespace

void fuzz(const std::uint8_t* data, std::size_t size) {
  static const tests::TempDir folder;
  const std::string_view text = as_text(data, size);
  const std::size_t line = std::min(text.find('\n'), text.size());
  const std::string_view lines = text.substr(std::min(line + 1, text.size()));
  const std::string fragments = folder / ("train." + fragments_in(lines) + ".json");
  write_file(fragments, text.substr(0, line));
  write_file(folder / "train.0.jsonl", lines);
  const auto verdicts = verify_digests(folder.path().string());
  std::filesystem::remove(fragments);
  if (!verdicts) {
    expect(!verdicts.error().message().empty(), "an error has a message");
    return;
  }
  for (const auto& verdict : *verdicts) {
    expect(!verdict.problem.empty() || verdict.seen <= verdict.size, "a valid epoch has its own rows");
  }
}

std::vector<std::string> seeds() {
  Layout plain{.fragment_rows = {5, 0, 7}};
  Layout shuffled{.fragment_rows = {4, 9, 3, 6}};
  shuffled.shuffle_fragments = true;
  shuffled.virtual_shards = 3;
  shuffled.window_rows = 4;
  shuffled.seed = 11;
  return {written(plain), written(shuffled), "{}\n{}\n", ""};
}

TRIREME_FUZZER(digest);

}  // namespace digest_fuzzer
