#include "storage/open_files.h"

#include <doctest/doctest.h>

#include <stdexcept>

#include "trireme/filesystem.h"
#include "unit/storage/fake_store.h"

namespace open_files_test {

using namespace trireme;
using storage::open_files;

namespace {

std::string refusal(const std::string& uri) {
  std::string path;
  auto files = open_files(uri, path);
  REQUIRE_FALSE(files);
  return files.error().message();
}

}  // namespace

TEST_CASE("a path and a file URI are local") {
  const std::pair<std::string, std::string> cases[] = {
      {"/data/runs", "/data/runs"},     {"relative/runs", "relative/runs"},
      {"/odd: //name", "/odd: //name"}, {"file:///data/my%20runs/50%25", "/data/my runs/50%"},
      {"FILE:///data", "/data"},        {"file://localhost/data", "/data"}};
  for (const auto& [uri, expected] : cases) {
    CAPTURE(uri);
    std::string path;
    auto files = open_files(uri, path);
    REQUIRE(files);
    CHECK((*files)->local());
    CHECK(path == expected);
    CHECK((*files)->describe(path) == expected);
  }
}

TEST_CASE("the error for an invalid URI has a solution") {
  CHECK(refusal("file://server/data") ==
        "storage_path = 'file://server/data': a file:// URI must have three slashes: file:///folder");
  CHECK(refusal("file:///a%zz").find("write '%' as %25") != std::string::npos);
  CHECK(refusal("file:///a%00").find("'%00'") != std::string::npos);
  CHECK(refusal("s3://bucket/run") ==
        "storage_path = 's3://bucket/run': this program has no file system for 's3'; link trireme::data "
        "(find_package(trireme COMPONENTS data)), or register one with trireme::register_filesystem");
}

TEST_CASE("a registered scheme uses its file system") {
  auto store = std::make_shared<tests::FakeStore>();
  std::string asked;
  register_filesystem("fake", [&](const std::string& uri) {
    asked = uri;
    return store;
  });
  std::string path;
  auto files = open_files("fake://bucket/runs/?region=here", path);
  REQUIRE(files);
  CHECK(asked == "fake://bucket/runs/?region=here");
  CHECK(path == "bucket/runs");
  CHECK_FALSE((*files)->local());
  CHECK((*files)->describe(path) == "fake://bucket/runs");
  REQUIRE((*files)->write_atomically(path + "/a", "content"));
  CHECK(store->objects().at("bucket/runs/a") == "content");

  register_filesystem("fake",
                      [](const std::string&) -> std::shared_ptr<FileSystem> { throw std::runtime_error("no"); });
  CHECK(refusal("fake://x") == "storage_path = 'fake://x' cannot be used: no");
  register_filesystem("fake", [](const std::string&) -> std::shared_ptr<FileSystem> { return nullptr; });
  CHECK(refusal("fake://x").find("is null") != std::string::npos);
}

}  // namespace open_files_test
