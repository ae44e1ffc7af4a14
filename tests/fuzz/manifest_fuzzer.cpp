#include "base/json.h"
#include "checkpoint/manifest.h"
#include "fuzz/fuzzer.h"
#include "storage/digest.h"
#include "storage/paths.h"

namespace manifest_fuzzer {

using namespace trireme;
using namespace trireme::checkpoint;

namespace {

void try_out(const std::string& text) {
  auto manifest = decode_manifest(text);
  if (!manifest) {
    expect(!manifest.error().message().empty(), "an error has a message");
    return;
  }
  for (const auto& file : manifest->files) {
    expect(storage::check_relative(file.path).ok(), "every path stays inside the checkpoint");
  }
  const std::string again = encode(*manifest);
  auto back = decode_manifest(again);
  expect(back.ok(), "written text can be parsed");
  expect(encode(*back) == again, "and is the same");
  auto files = files_from(to_list(manifest->files));
  expect(files.ok() && *files == manifest->files, "files survive a round trip");
}

// Mutations invalidate the checksum; a correct one lets them reach the decoder.
std::string sealed(std::string text) {
  const auto end = text.rfind(",\n  \"checksum\"");
  if (end != std::string::npos) text.erase(end);
  const std::string checksum = storage::digest_of(text);
  return text + ",\n  \"checksum\": \"" + checksum + "\"\n}\n";
}

}  // namespace

void fuzz(const std::uint8_t* data, std::size_t size) {
  const std::string text(as_text(data, size));
  try_out(text);
  try_out(sealed(text));
  if (auto value = base::parse_json(text)) {
    if (const auto* list = value->get_if<List>()) (void)files_from(*list);
  }
}

std::vector<std::string> seeds() {
  Manifest small;
  Manifest large;
  large.index = 12;
  large.attempt = 3;
  large.time = 1763235246.125;
  large.metrics = Dict{{"loss", 0.25}, {"nested", Dict{{"accuracy", List{1, 2.5, nullptr}}}}, {"b", Bytes{"\x01\xff"}}};
  large.status = Status::kPendingValidation;
  large.validation = Dict{{"fn_kwargs", Dict{}}, {"timeout_s", 5.0}};
  large.files = {{"state.safetensors", 1000000007, "0123456789abcdef"},
                 {"rank_1/state.json", 0, "2d06800538d394c2"},
                 {"not \xff text", 3, "ffffffffffffffff"}};
  return {encode(small), encode(large), R"([["a/b", 1, "0123456789abcdef"], ["..", -1, ""], 7])", ""};
}

TRIREME_FUZZER(manifest);

}  // namespace manifest_fuzzer
