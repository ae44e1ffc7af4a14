#include "api/program.h"

#include <cxxabi.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "api/current.h"
#include "base/fields.h"
#include "base/json.h"

namespace trireme::api {
namespace {

constexpr const char* kTicketVariable = "TRIREME_TICKET_FD";
constexpr int kFailedExitCode = 1;

[[noreturn]] void leave(int code) {
  std::fflush(nullptr);
  // Static objects of the program may be in use by threads of the user's frameworks: nothing is torn down.
  ::_exit(code);
}

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "trireme: this worker cannot start: %s\n", why.c_str());
  leave(kFailedExitCode);
}

std::string read_all(int fd) {
  std::string text;
  char chunk[4096];
  while (true) {
    ssize_t count = ::read(fd, chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(chunk, static_cast<std::size_t>(count));
  }
}

std::string type_name(const std::exception& thrown) {
  int status = 0;
  char* name = abi::__cxa_demangle(typeid(thrown).name(), nullptr, nullptr, &status);
  std::string text = status == 0 ? name : typeid(thrown).name();
  std::free(name);
  return text;
}

// A border: whatever the user's function throws becomes the worker's failure.
std::optional<wire::Failed> run_user_function(const TrainFunction& function, const Config& config, Value& value) {
  try {
    value = function(config);
    return std::nullopt;
  } catch (const std::exception& thrown) {
    wire::Failed failure;
    failure.error_type = type_name(thrown);
    failure.message = thrown.what();
    return failure;
  } catch (...) {
    wire::Failed failure;
    failure.error_type = "an exception that is not a std::exception";
    return failure;
  }
}

}  // namespace

Bytes Job::encode() const {
  List paths(results.begin(), results.end());
  Dict dict{{"function", function}, {"fit", fit}, {"config", config}};
  dict["results"] = std::move(paths);
  return Bytes{base::to_msgpack(dict)};
}

base::Result<Job> Job::decode(const Bytes& bytes) {
  TRIREME_ASSIGN(auto value, base::parse_msgpack(bytes.data), "the job");
  const auto* dict = value.get_if<Dict>();
  if (!dict) return base::error("the job is no dict");
  Job job;
  job.function = dict->at("function").as_string();
  job.fit = dict->at("fit").as_int();
  job.config = dict->at("config").as_dict();
  for (const auto& path : dict->at("results").as_list()) job.results.push_back(path.as_string());
  return job;
}

Program& Program::instance() {
  static Program program;
  return program;
}

const Program::Registered* Program::find(const void* address) const {
  for (const auto& each : functions_) {
    if (address && each.address == address) return &each;
  }
  return nullptr;
}

const Program::Registered* Program::find(const std::string& name) const {
  for (const auto& each : functions_) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

void Program::init(int argc, char** argv, const InitOptions& options) {
  argv_.assign(argv, argv + argc);
  if (std::getenv(kTicketVariable)) {
    join_run();
    return;
  }
  auto done = runtime_.init(options);
  if (!done) throw ConfigError(done.error().message());
}

void Program::join_run() {
  const int fd = std::atoi(std::getenv(kTicketVariable));
  const std::string text = read_all(fd);
  ::close(fd);
  ::unsetenv(kTicketVariable);
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  auto ticket = worker::parse_ticket(text);
  if (!ticket) give_up(ticket.error().message());
  auto session = worker::Session::join(*ticket);
  if (!session) give_up(session.error().message());
  session_ = std::move(*session);
  auto start = session_->wait_start();
  if (!start) give_up(start.error().message());
  auto job = Job::decode(start->payload);
  if (!job) give_up(job.error().message());
  job_ = *std::move(job);
  if (job_.function.empty()) return;
  const Registered* registered = find(job_.function);
  if (!registered) give_up(fmt::format("no function '{}' is registered in this program", job_.function));
  work(registered->function);
}

void Program::work(const TrainFunction& function) {
  Current current;
  current.context = context_of(session_->start());
  current.session = session_;
  if (session_->start().checkpoint) current.checkpoint = Checkpoint(*session_->start().checkpoint);
  std::optional<wire::Failed> failure;
  Value value;
  {
    CurrentScope scope(current);
    session_->entered();
    failure = run_user_function(function, job_.config, value);
  }
  std::fflush(nullptr);
  if (failure) {
    session_->fail(*std::move(failure));
    leave(kFailedExitCode);
  }
  auto finished = session_->finish(Bytes{base::to_msgpack(value)});
  if (!finished) give_up(finished.error().message());
  leave(0);
}

std::optional<Result> Program::replay(std::int64_t fit, const TrainFunction& function) {
  if (!session_) return std::nullopt;
  if (fit == job_.fit) work(function);
  if (fit < static_cast<std::int64_t>(job_.results.size())) {
    const std::string& path = job_.results[static_cast<std::size_t>(fit)];
    return path.empty() ? Result{} : Result::from_path(path);
  }
  give_up(fmt::format("main() reached fit() number {} before number {}: it must take the same way in every process", fit,
                      job_.fit));
}

}  // namespace trireme::api
