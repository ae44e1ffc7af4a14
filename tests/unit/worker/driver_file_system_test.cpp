#include "worker/driver_file_system.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "control/storage_server.h"
#include "storage/code_tree.h"
#include "storage/local_files.h"
#include "storage/remote_files.h"
#include "unit/temp_dir.h"
#include "wire/secret.h"
#include "worker/shipped_code.h"

namespace driver_file_system_test {

using namespace trireme;
using trireme::tests::TempDir;
using trireme::worker::DriverFileSystem;
using trireme::worker::fetch_code;

namespace fs = std::filesystem;

namespace {

std::string content_of(const fs::path& path) { return storage::read_file(path.native()).value(); }

void put(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << content;
}

// A run folder on the "driver's machine", and a worker's view of it.
struct Fixture {
  explicit Fixture(std::map<std::string, std::string> code = {}, std::optional<std::string> readable = {}) {
    fs::create_directories(run);
    control::StorageServer::Place place{
        .run_id = "run", .folder = run, .readable = std::move(readable), .code = std::move(code), .scratch = run};
    server = control::StorageServer::start(wire::parse_address("tls://127.0.0.1:0").value(), secret, place).value();
    server->set_attempt(3);
    files = connect(secret);
  }
  std::shared_ptr<DriverFileSystem> connect(const std::string& proof) const {
    wire::FileClient::Peer peer{"the driver's storage", server->address(), proof, {}};
    peer.hello.run_id = "run";
    peer.hello.role = "storage";
    peer.hello.attempt = 3;
    return std::make_shared<DriverFileSystem>(std::move(peer));
  }

  TempDir temp;
  std::string run = temp.path().native() + "/run";
  std::string secret = wire::random_bytes(wire::kSecretSize);
  std::unique_ptr<control::StorageServer> server;
  std::shared_ptr<DriverFileSystem> files;
};

TEST_CASE("files are uploaded, listed, downloaded and removed") {
  Fixture fixture;
  auto& files = *fixture.files;
  const std::string large(std::size_t{9} << 20, 'x');  // several blocks
  put(fixture.temp.path().native() + "/state/a/large", large);
  put(fixture.temp.path().native() + "/state/empty", "");
  storage::RemoteFiles remote(fixture.files, DriverFileSystem::kScheme);
  const std::string target = fixture.run + "/checkpoint_000001";
  const auto stored = remote.put_folder(fixture.temp.path().native() + "/state", target, storage::Take::kCopy);
  REQUIRE_MESSAGE(stored.ok(), stored.error().message());
  CHECK(stored->size() == 2);
  CHECK(content_of(target + "/a/large") == large);
  CHECK(content_of(target + "/empty").empty());
  CHECK(files.exists(target));
  CHECK(files.list_folders(fixture.run) == std::vector<std::string>{".trireme_incoming", "checkpoint_000001"});
  const auto got = remote.get_folder(target, *stored, fixture.temp.path().native() + "/copy");
  REQUIRE_MESSAGE(got.ok(), got.error().message());
  CHECK(content_of(fixture.temp.path().native() + "/copy/a/large") == large);
  files.write(target + "/note", "text");
  CHECK(files.read(target + "/note") == "text");
  files.remove_folder(target);
  CHECK_FALSE(files.exists(target));
  fixture.server.reset();
  CHECK_FALSE(fs::exists(fixture.run + "/.trireme_incoming"));
}

TEST_CASE("only checkpoints of the run are accessible") {
  TempDir given;
  put(given.path().native() + "/model", "weights");
  Fixture fixture({}, given.path().native());
  auto& files = *fixture.files;
  put(fixture.temp.path().native() + "/secret", "key");
  put(fixture.run + "/run.json", "{}");
  for (const std::string path : {"/secret", "/run/../secret", "/run/run.json", "/run/logs/attempt_0/rank_0.log"}) {
    CAPTURE(path);
    CHECK_THROWS(files.read(fixture.temp.path().native() + path));
    CHECK_THROWS(files.write(fixture.temp.path().native() + path, "changed"));
    CHECK_THROWS(files.upload(given.path().native() + "/model", fixture.temp.path().native() + path));
    CHECK_THROWS(files.remove_file(fixture.temp.path().native() + path));
  }
  CHECK_THROWS(files.remove_folder(fixture.run));
  CHECK(content_of(fixture.temp.path().native() + "/secret") == "key");
  // The checkpoint that the user gave is read-only.
  CHECK(files.read(given.path().native() + "/model") == "weights");
  CHECK_THROWS(files.write(given.path().native() + "/model", "changed"));
  CHECK_THROWS(files.remove_file(given.path().native() + "/model"));
}

TEST_CASE("peers without the secret and workers of earlier attempts are refused") {
  Fixture fixture;
  CHECK_THROWS(fixture.connect(std::string(wire::kSecretSize, 'x'))->exists(fixture.run));
  CHECK(fixture.files->exists(fixture.run));
  fixture.server->set_attempt(4);
  CHECK_THROWS_WITH(fixture.files->write(fixture.run + "/checkpoint_1/a", ""),
                    "attempt 3 is over; the run is in attempt 4");
  fixture.files->set_attempt(4);
  CHECK(fixture.files->exists(fixture.run));
}

TEST_CASE("code is fetched once per node, as it was when the run started") {
  TempDir project;
  put(project.path().native() + "/job/helper.py", "x = 1\n");
  put(project.path().native() + "/job/package/__init__.py", "");
  put(project.path().native() + "/job/.git/config", "hidden");
  put(project.path().native() + "/job/venv/pyvenv.cfg", "");
  put(project.path().native() + "/one.py", "y = 2\n");
  const std::string job = project.path().native() + "/job";
  const std::string one = project.path().native() + "/one.py";
  const std::map<std::string, std::string> code{{job, storage::read_code(job).value().digest},
                                                {one, storage::read_code(one).value().digest}};
  TempDir node;
  ::setenv("TRIREME_LOG_ROOT", node.path().c_str(), 1);
  Fixture fixture(code);

  // The same content at the same path is used in place.
  CHECK(fetch_code(*fixture.files, code).value() == std::map<std::string, std::string>{{job, job}, {one, one}});

  TempDir other;
  ::setenv("TRIREME_LOG_ROOT", other.path().c_str(), 1);
  (void)fixture.files->list_files(job);  // another node has asked for it
  (void)fixture.files->list_files(one);
  put(job + "/helper.py", "x = 3\n");  // edited during the run
  put(one, "y = 4\n");
  const auto fetched = fetch_code(*fixture.files, code);
  REQUIRE_MESSAGE(fetched.ok(), fetched.error().message());
  CHECK(fetched->at(job).ends_with("/job"));
  CHECK(fetched->at(one).ends_with("/one.py"));
  CHECK(content_of(fetched->at(job) + "/helper.py") == "x = 1\n");
  CHECK(content_of(fetched->at(one)) == "y = 2\n");
  CHECK(fs::exists(fetched->at(job) + "/package/__init__.py"));
  CHECK_FALSE(fs::exists(fetched->at(job) + "/.git"));
  CHECK_FALSE(fs::exists(fetched->at(job) + "/venv"));
  // Once: the driver is not asked again.
  fixture.server.reset();
  CHECK(fetch_code(*fixture.files, code).value() == *fetched);
  ::unsetenv("TRIREME_LOG_ROOT");
}

TEST_CASE("output in the folder of the script does not make it different") {
  TempDir project;
  put(project.path() / "helper.py", "x = 1\n");
  put(project.path() / "job.out", "step 1\n");
  const auto before = storage::read_code(project.path()).value();
  put(project.path() / "job.out", "step 1\nstep 2\n");
  put(project.path() / "run/events.jsonl", "{}");
  put(project.path() / "run/config.py", "");
  CHECK(storage::read_code(project.path()).value().digest == before.digest);
  put(project.path() / "helper.py", "x = 2\n");
  CHECK(storage::read_code(project.path()).value().digest != before.digest);
}

}  // namespace
}  // namespace driver_file_system_test
