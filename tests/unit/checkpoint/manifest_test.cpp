#include "checkpoint/manifest.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "base/json.h"
#include "storage/digest.h"

namespace manifest_test {

using namespace trireme;
using namespace trireme::checkpoint;

namespace {

Manifest example() {
  Manifest manifest;
  manifest.index = 12;
  manifest.attempt = 3;
  manifest.time = 1763235246.5;
  manifest.metrics =
      Dict{{"loss", 0.25}, {"best", Dict{{"at", 7}}}, {"worst", std::numeric_limits<double>::infinity()}};
  manifest.status = Status::kPendingValidation;
  manifest.validation = Dict{{"timeout_s", 5.0}};
  manifest.files = {{"a", 0, "2d06800538d394c2"}, {"rank_1/b \"c\"", 123456789012, "00000000000000ff"}};
  return manifest;
}

// The text with another body and a matching checksum.
std::string sealed(const std::string& body) {
  return body + ",\n  \"checksum\": \"" + storage::digest_of(body) + "\"\n}\n";
}

std::string refusal(const std::string& text) {
  auto manifest = decode_manifest(text);
  REQUIRE_FALSE(manifest);
  return manifest.error().message();
}

}  // namespace

TEST_CASE("manifest round trip") {
  CHECK(decode_manifest(encode(Manifest{})).value() == Manifest{});
  CHECK(decode_manifest(encode(example())).value() == example());
  Manifest odd;
  odd.metrics = Dict{{"nan", std::nan("")}};
  CHECK(std::isnan(decode_manifest(encode(odd))->metrics["nan"].as_double()));
  for (auto status : {Status::kCommitted, Status::kPendingValidation, Status::kValidated, Status::kValidationTimeout,
                      Status::kValidationFailed}) {
    odd = Manifest{};
    odd.status = status;
    CHECK(decode_manifest(encode(odd))->status == status);
  }
}

TEST_CASE("a manifest is human-readable JSON") {
  const std::string text = encode(example());
  CHECK(text.starts_with("{\n  \"format\": 2,\n  \"index\": 12,\n  \"attempt\": 3,\n"));
  CHECK(text.find("\n    {\"path\":\"a\",\"size\":0,\"xxh3\":\"2d06800538d394c2\"},\n") != std::string::npos);
  auto parsed = base::parse_json_dict(text);
  REQUIRE(parsed);
  CHECK((*parsed)["status"] == Value("PENDING_VALIDATION"));
  CHECK((*parsed)["files"].as_list().size() == 2);
  // As documented: the checksum covers all but the last 37 bytes.
  CHECK((*parsed)["checksum"] == Value(storage::digest_of(text.substr(0, text.size() - 37))));
}

TEST_CASE("names that are not UTF-8 survive the round trip") {
  Manifest manifest;
  for (const std::string& name :
       {std::string("\xff\xfe"), std::string("ä/ö"), std::string("\xc0\xaf"), std::string("\xed\xa0\x80"),
        std::string("\xf4\x90\x80\x80"), std::string("a\xe2\x82")}) {
    manifest.files.push_back({name, 1, "0000000000000000"});
  }
  CHECK(decode_manifest(encode(manifest)).value() == manifest);
  CHECK(files_from(to_list(manifest.files)).value() == manifest.files);
}

TEST_CASE("every changed byte and every truncation is detected") {
  const std::string text = encode(example());
  for (std::size_t i = 0; i < text.size(); ++i) {
    CAPTURE(i);
    CHECK_FALSE(decode_manifest(text.substr(0, i)));
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 4);
    CHECK_FALSE(decode_manifest(changed));
  }
  CHECK(refusal("") == "it does not end with its checksum: it was truncated or edited");
  CHECK(refusal(text + "\n") == "it does not end with its checksum: it was truncated or edited");
  CHECK(refusal(sealed("{").replace(20, 1, "z")).find("it was damaged or edited") != std::string::npos);
}

TEST_CASE("an invalid manifest is rejected with a reason") {
  const std::string good = encode(example());
  const std::string body = good.substr(0, good.size() - 37);
  auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = body;
    const auto at = changed.find(from);
    REQUIRE(at != std::string::npos);
    return sealed(changed.replace(at, from.size(), to));
  };
  CHECK(decode_manifest(sealed(body)));
  CHECK(refusal(sealed("[1")).find("not JSON") != std::string::npos);
  CHECK(refusal(sealed("{\"a\": 1")) == "it has no 'format'");
  CHECK(refusal(with("\"format\": 2", "\"format\": 3")) ==
        "it has format 3, this version reads 2; use the version of Trireme that wrote it");
  CHECK(refusal(with("\"index\": 12", "\"index\": \"12\"")) == "its 'index' is string");
  CHECK(refusal(with("\"attempt\": 3", "\"attempt\": 99999999999")) == "its 'attempt' is 99999999999");
  CHECK(refusal(with("PENDING_VALIDATION", "DONE")) == "unknown status 'DONE'");
  CHECK(refusal(with("\"size\":0", "\"size\":-1")) == "'a' has no size");
  CHECK(refusal(with("\"size\":0", "\"size\":18446744073709551615")) == "'a' has no size");
  CHECK(refusal(with("2d06800538d394c2", "2D06800538D394C2")) == "'a' has no checksum");
  CHECK(refusal(with("\"path\":\"a\"", "\"path\":7")) == "a file has a path of type int");
  CHECK(refusal(with("\"path\":\"a\"", "\"name\":\"a\"")) == "a file has no path, size or xxh3");
  for (const char* path : {"", "/etc/passwd", "..", "../a", "a/../../b", "a//b", "./a", "a/", "a\\u0000b"}) {
    CAPTURE(path);
    CHECK(refusal(with("\"path\":\"a\"", fmt::format("\"path\":\"{}\"", path)))
              .find("is not a relative path inside a checkpoint's") != std::string::npos);
  }
}

TEST_CASE("files are sent as lists, and untrusted lists are checked") {
  CHECK(files_from(to_list(example().files)).value() == example().files);
  CHECK(files_from({}).value().empty());
  CHECK_FALSE(files_from({"a"}));
  CHECK_FALSE(files_from({Value(List{"a", 1})}));
  CHECK_FALSE(files_from({Value(List{"../a", 1, "0000000000000000"})}));
  CHECK_FALSE(files_from({Value(List{"a", -1, "0000000000000000"})}));
  CHECK_FALSE(files_from({Value(List{"a", 1, ""})}));
}

}  // namespace manifest_test
