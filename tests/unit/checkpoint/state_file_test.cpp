#include "checkpoint/state_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <limits>

#include "base/json.h"
#include "checkpoint/file_bytes.h"
#include "checkpoint/manifest.h"
#include "checkpoint/snapshot.h"
#include "storage/digest.h"
#include "unit/temp_dir.h"

namespace state_file_test {

using namespace trireme;
using namespace trireme::checkpoint;
using trireme::tests::TempDir;

namespace {

namespace fs = std::filesystem;

Dict everything() {
  return {{"null", nullptr},
          {"true", true},
          {"int", std::numeric_limits<std::int64_t>::min()},
          {"third", 1.0 / 3.0},
          {"inf", std::numeric_limits<double>::infinity()},
          {"text", "gr\xC3\xBC\xC3\x9F \"quoted\" \\ \n\x01"},
          {"bytes", Bytes{std::string("\x00\xFF\x80", 3)}},
          {"model",
           Dict{{"fc.weight", Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3})}, {"fc.bias", Tensor(DType::kBF16, {3})}}},
          {"list", List{1, Tensor::of<std::int64_t>({-1}), List{}, Dict{}}},
          {"nothing", Tensor(DType::kF64, {0, 3})},
          {"scalar", Tensor::scalar(2.5)},
          {"python",
           Dict{{"$dict", List{List{0, Tensor::of<bool>({true, false})}, List{"a", Dict{{"$tuple", List{1}}}}}}}}};
}

std::string content(const std::string& path) { return std::string(read_file(path).value().text()); }

void replace(const std::string& path, std::string_view text) {
  fs::remove(path);
  tests::append_file(path, text);
}

// As in a committed checkpoint.
void commit(const std::string& folder, const std::vector<storage::FileRecord>& files, const std::string& prefix = "") {
  Manifest manifest;
  for (auto file : files) {
    file.path = prefix + file.path;
    manifest.files.push_back(file);
  }
  replace(folder + "/" + kManifestName, encode(manifest));
}

std::string failure(const base::Result<Dict>& loaded) {
  CHECK_FALSE(loaded.ok());
  return loaded ? "" : loaded.error().message();
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("state round trip") {
  TempDir folder;
  const Dict state = everything();
  for (int threads : {0, 1}) {
    const auto records = save_state(folder / "s", state, {.threads = threads}).value();
    for (bool map : {true, false}) CHECK(load_state(folder / "s", {.map = map}).value() == state);
    CHECK(load_state((folder / "s") + "/").value() == state);
    REQUIRE(records.size() == 2);
    for (const auto& record : records) {
      const std::string text = content((folder / "s") + "/" + record.path);
      CHECK(record.size == text.size());
      CHECK(record.xxh3 == storage::digest_of(text));
    }
  }
  CHECK(names_in(folder / "s") == std::vector<std::string>{"state.json", "state.safetensors"});
}

TEST_CASE("tensors are named by their path, and names are unique") {
  TempDir folder;
  const Tensor one = Tensor::of<float>({1});
  const Tensor two = Tensor::of<float>({2});
  const Dict state = {{"a", Dict{{"b", one}}},
                      {"a/b", two},
                      {"a/b~2", one},
                      {"", two},
                      {"__metadata__", one},
                      {"opt", Dict{{"$dict", List{List{7, Dict{{"avg", two}}}, List{Dict{{"$int", "99"}}, one}}}}},
                      {"pair", Dict{{"$tuple", List{one, two}}}},
                      {"array", Dict{{"$numpy", one}}}};
  REQUIRE(save_state(folder / "s", state).ok());
  const Dict tensors = load_safetensors(folder / "s/state.safetensors").value();
  CHECK(tensors.at("a/b") == one);
  CHECK(tensors.at("a/b~2") == two);
  CHECK(tensors.at("a/b~2~2") == one);
  CHECK(tensors.at("_") == two);
  CHECK(tensors.at("__metadata___") == one);
  CHECK(tensors.at("opt/7/avg") == two);
  CHECK(tensors.at("pair/1") == two);
  CHECK(tensors.at("array") == one);
  CHECK(load_state(folder / "s").value() == state);
}

TEST_CASE("writing to loaded tensors does not change the file") {
  TempDir folder;
  REQUIRE(save_state(folder / "s", {{"w", Tensor::of<float>({1, 2})}}).ok());
  for (bool map : {true, false}) {
    const Dict state = load_state(folder / "s", {.map = map}).value();
    state["w"].as_tensor().values<float>()[0] = 7;
    CHECK(state["w"].as_tensor().values<float>()[0] == 7);
    CHECK(load_state(folder / "s").value()["w"].as_tensor().values<float>()[0] == 1);
  }
}

TEST_CASE("loaded tensors outlive the file, also if another state replaces it") {
  TempDir folder;
  REQUIRE(save_state(folder / "s", {{"w", Tensor::of<float>({1, 2})}, {"epoch", 1}}).ok());
  const Dict first = load_state(folder / "s").value();
  REQUIRE(save_state(folder / "s", {{"w", Tensor::of<float>({3})}, {"epoch", 2}}).ok());
  const Dict second = load_state(folder / "s").value();
  fs::remove_all(folder / "s");
  CHECK(first["w"] == Tensor::of<float>({1, 2}));
  CHECK(second["w"] == Tensor::of<float>({3}));
  CHECK(second["epoch"].get<int>() == 2);
}

TEST_CASE("large files are the same with and without direct I/O") {
  TempDir folder;
  Dict state;
  // Ends inside a block, with tensors that begin anywhere in one.
  for (std::int64_t size : {20'000'001, 4096, 0, 3, 17'000'000}) {
    Tensor tensor(DType::kU8, {size});
    auto values = tensor.values<std::uint8_t>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i * 7 + i / 4096);
    state[std::to_string(size)] = tensor;
  }
  const auto past_the_cache = save_state(folder / "a", state).value();
  CHECK(load_state(folder / "a").value() == state);
  CHECK(save_state(folder / "b", state, {.durable = false}).value() == past_the_cache);
  CHECK(content(folder / "a/state.safetensors") == content(folder / "b/state.safetensors"));
  CHECK(SnapshotPool().take(state).value()->write(folder / "c").value() == past_the_cache);
  CHECK(content(folder / "a/state.safetensors") == content(folder / "c/state.safetensors"));
}

TEST_CASE("20,000 tensors in one dict") {
  TempDir folder;
  Dict state;
  for (int i = 0; i < 20'000; ++i) state.append("layer." + std::to_string(i), Tensor::of<std::int32_t>({i}));
  REQUIRE(save_state(folder / "s", state, {.durable = false}).ok());
  const Dict loaded = load_state(folder / "s").value();
  REQUIRE(loaded.size() == 20'000);
  CHECK(std::equal(state.begin(), state.end(), loaded.begin()));  // in the same order
}

TEST_CASE("an existing folder keeps its other files; a missing one is created with its parents") {
  TempDir folder;
  tests::append_file(folder / "s/mine.txt", "mine");
  REQUIRE(save_state(folder / "s", {{"a", 1}}).ok());
  CHECK(names_in(folder / "s") == std::vector<std::string>{"mine.txt", "state.json", "state.safetensors"});
  REQUIRE(save_state(folder / "x/y/z", {{"a", 1}}).ok());
  CHECK(load_state(folder / "x/y/z").value() == Dict{{"a", 1}});
}

TEST_CASE("a failed write leaves the old state and nothing else") {
  TempDir folder;
  tests::append_file(folder / "file", "");
  auto saved = save_state(folder / "file", {{"a", 1}});
  REQUIRE_FALSE(saved.ok());
  CHECK(saved.error().message().find((folder / "file") + " is not a folder") != std::string::npos);

  REQUIRE(save_state(folder / "s", {{"a", 1}}).ok());
  Value deep = 1;
  for (int i = 0; i < 70; ++i) deep = List{deep};
  for (const auto& [bad, why] : std::vector<std::pair<Dict, std::string>>{
           {{{"deep", deep}}, "is nested deeper than the limit of 64 levels"},
           {{{"a", Dict{{"text", "\xff"}}}}, "'a/text' of the state has text that is not UTF-8"},
           {{{"a", Dict{{"\xff", 1}}}}, "has text that is not UTF-8"},
           {{{"a", Dict{{"$tensor", "x"}}}}, "'a' of the state is a dict with the key '$tensor'"},
           {{{"a", Dict{{"$x", 1}, {"y", 2}}}}, "'a' of the state has the key '$x'"},
           {{{"a", Dict{{"$dict", List{1}}}}}, "has a '$dict' that is not a list of pairs"}}) {
    auto refused = save_state(folder / "s", bad);
    REQUIRE_FALSE(refused.ok());
    CHECK_MESSAGE(refused.error().message().find(why) != std::string::npos, refused.error().message());
  }
  CHECK(load_state(folder / "s").value() == Dict{{"a", 1}});
  CHECK(names_in(folder / "s").size() == 2);
}

TEST_CASE("a state at the nesting limit, with all constructs that add levels") {
  TempDir folder;
  for (const Value& leaf : {Value(Tensor::of<float>({1})), Value(std::numeric_limits<double>::infinity()),
                            Value(Bytes{"x"}), Value(List{}), Value(Dict{{"$tuple", List{}}})}) {
    Value deep = leaf;
    int levels = 0;
    for (;; ++levels) {
      if (!save_state(folder / "s", {{"deep", deep}}, {.durable = false}).ok()) break;
      REQUIRE(load_state(folder / "s").value() == Dict{{"deep", deep}});
      deep = List{deep};
    }
    CHECK(levels >= 61);
  }
}

TEST_CASE("the error for a missing or invalid state names it") {
  TempDir folder;
  CHECK(failure(load_state(folder / "absent")).find("absent is not a folder") != std::string::npos);
  fs::create_directories(folder / "s");
  CHECK(failure(load_state(folder / "s")).find("could not open " + (folder / "s/state.json")) != std::string::npos);
  REQUIRE(save_state(folder / "s", everything()).ok());
  fs::remove(folder / "s/state.safetensors");
  CHECK(failure(load_state(folder / "s")).find("state.safetensors") != std::string::npos);
}

TEST_CASE("damage is detected by the manifest: size, then checksum, by name") {
  TempDir folder;
  const std::string checkpoint = folder / "checkpoint_000003";
  for (const std::string& below : {std::string(), std::string("rank_1/")}) {
    const std::string where = checkpoint + "/" + below;
    const auto records = save_state(where, everything()).value();
    commit(checkpoint, records, below);
    CHECK(load_state(where).value() == everything());
    for (const auto& record : records) {
      const std::string path = where + record.path;
      const std::string good = content(path);
      std::string bad = good;
      bad.back() = static_cast<char>(bad.back() ^ 1);
      replace(path, bad);
      CHECK(failure(load_state(where))
                .find("checkpoint_000003/" + below + record.path + " is damaged: its checksum is " +
                      storage::digest_of(bad) + ", but the manifest lists " + record.xxh3 +
                      "; load an earlier checkpoint") != std::string::npos);
      replace(path, good.substr(0, good.size() / 2));
      CHECK(failure(load_state(where)).find(record.path + " is damaged: it has ") != std::string::npos);
      replace(path, "");
      CHECK(failure(load_state(where)).find(record.path + " is damaged: it has 0 bytes") != std::string::npos);
      replace(path, good);
    }
    CHECK(load_state(where).value() == everything());
  }
}

TEST_CASE("damage is found anywhere in a large file, mapped or read") {
  TempDir folder;
  const auto records = save_state(folder / "s", {{"w", Tensor(DType::kU8, {9'000'001})}}).value();
  commit(folder / "s", records);
  const std::string good = content(folder / "s/state.safetensors");
  for (bool map : {true, false}) {
    CHECK(load_state(folder / "s", {.map = map}).value()["w"].as_tensor().num_elements() == 9'000'001);
    for (std::size_t at : {good.size() - 1, good.size() / 2, std::size_t{200}}) {
      std::string bad = good;
      bad[at] = 1;
      replace(folder / "s/state.safetensors", bad);
      CHECK(failure(load_state(folder / "s", {.map = map})).find("its checksum is " + storage::digest_of(bad)) !=
            std::string::npos);
    }
    replace(folder / "s/state.safetensors", good);
  }
}

TEST_CASE("verify=false skips checksums, and a damaged manifest is an error") {
  TempDir folder;
  const auto records = save_state(folder / "s", {{"w", Tensor::of<std::uint8_t>({1, 2, 3})}}).value();
  commit(folder / "s", records);
  std::string bad = content(folder / "s/state.safetensors");
  bad.back() = 9;
  replace(folder / "s/state.safetensors", bad);
  CHECK(load_state(folder / "s", {.verify = false}).value()["w"] == Tensor::of<std::uint8_t>({1, 2, 9}));
  CHECK_FALSE(load_state(folder / "s").ok());
  CHECK_FALSE(load_state(folder / "s", {.expected = records}).ok());
  replace(folder / "s/.trireme_manifest.json", "{}");
  CHECK(failure(load_state(folder / "s")).find(".trireme_manifest.json") != std::string::npos);
}

TEST_CASE("files may be in another place") {
  TempDir folder;
  const auto records = save_state(folder / "s", everything()).value();
  fs::rename(folder / "s/state.safetensors", folder / "moved");
  const std::map<std::string, std::string> moved = {{kTensorsName, folder / "moved"}};
  CHECK(load_state(folder / "s", {.elsewhere = moved, .expected = records}).value() == everything());
}

TEST_CASE("without a manifest, truncated or mismatched files are detected by their content") {
  TempDir folder;
  REQUIRE(save_state(folder / "s", everything()).ok());
  const std::string tensors = content(folder / "s/state.safetensors");
  replace(folder / "s/state.safetensors", tensors.substr(0, tensors.size() - 1));
  CHECK(failure(load_state(folder / "s")).find("s/state.safetensors: the tensor '") != std::string::npos);
  REQUIRE(save_state(folder / "other", {{"x", Tensor::of<float>({1})}}).ok());
  fs::copy(folder / "other/state.safetensors", folder / "s/state.safetensors", fs::copy_options::overwrite_existing);
  CHECK(failure(load_state(folder / "s"))
            .find("it refers to the tensor 'model/fc.weight', which is not in state.safetensors") != std::string::npos);
  replace(folder / "s/state.json", "[1]");
  CHECK(failure(load_state(folder / "s")).find("s/state.json is damaged: expected a JSON object") != std::string::npos);
  replace(folder / "s/state.json", R"({"$tensor":"x"})");
  CHECK(failure(load_state(folder / "s")).find("a single tensor") != std::string::npos);
  replace(folder / "s/state.json", R"({"x":{"$tensor":1}})");
  CHECK(failure(load_state(folder / "s")).find("a '$tensor' without a name") != std::string::npos);
}

TEST_CASE("a state with a later format version is rejected") {
  TempDir folder;
  REQUIRE(save_state(folder / "s", {{"a", 1}}).ok());
  std::string text = content(folder / "s/state.safetensors");
  const std::string version = R"("trireme_state":")";
  text.at(text.find(version) + version.size()) = '2';
  replace(folder / "s/state.safetensors", text);
  CHECK(failure(load_state(folder / "s")).find("format version 2, but this program supports version 1") !=
        std::string::npos);
}

TEST_CASE("any safetensors file can be read, also with unaligned tensors") {
  TempDir folder;
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}})";
  const std::uint64_t length = header.size();
  const double number = 0.1;
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  file += header + "7" + std::string(reinterpret_cast<const char*>(&number), sizeof number);
  tests::append_file(folder / "x.safetensors", file);
  const Dict tensors = load_safetensors(folder / "x.safetensors").value();
  CHECK(tensors["a"].as_tensor().values<std::uint8_t>()[0] == '7');
  CHECK(tensors["b"].as_tensor().values<double>()[0] == number);
}

}  // namespace state_file_test
