#include "api/program.h"

#include <cxxabi.h>
#include <link.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "agent/agent.h"
#include "api/cancel_hooks.h"
#include "api/train_session.h"
#include "base/fields.h"
#include "base/json.h"
#include "worker/process.h"
#include "worker/stacks.h"

namespace trireme::api {
namespace {

constexpr const char* kTicketVariable = "TRIREME_TICKET_FD";
constexpr const char* kAgentVariable = "TRIREME_AGENT";
constexpr int kFailedExitCode = 1;

[[noreturn]] void leave(int code) {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  // No destructors run: threads of the user's frameworks may still use static objects.
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
  // The class that std::throw_with_nested() derives; the user threw the inner one.
  constexpr std::string_view kNested = "std::_Nested_exception<";
  if (text.starts_with(kNested) && text.ends_with('>'))
    text = text.substr(kNested.size(), text.size() - kNested.size() - 1);
  return text;
}

// "outer; caused by std::invalid_argument: inner", for exceptions of std::throw_with_nested().
std::string text_of(const std::exception& thrown) {
  std::string text = thrown.what();
  const auto* outer = dynamic_cast<const std::nested_exception*>(&thrown);
  if (!outer || !outer->nested_ptr()) return text;
  try {
    outer->rethrow_nested();
  } catch (const std::exception& inner) {
    return fmt::format("{}; caused by {}: {}", text, type_name(inner), text_of(inner));
  } catch (...) {
    return text + "; caused by an exception that is not a std::exception";
  }
}

wire::Failed failure_of(std::string error_type, std::string message) {
  wire::Failed failure;
  failure.error_type = std::move(error_type);
  failure.message = std::move(message);
  return failure;
}

// Exceptions of the user's function stop here and become the worker's failure, except Interrupted.
std::optional<wire::Failed> run_user_function(const TrainFunction& function, const Config& config, Value& value) {
  try {
    value = function(config);
    return std::nullopt;
  } catch (const Interrupted&) {
    return std::nullopt;
  } catch (const std::exception& thrown) {
    return failure_of(type_name(thrown), text_of(thrown));
  } catch (...) {
    return failure_of("an exception that is not a std::exception", "");
  }
}

// The reason to keep this process for another attempt; empty if there is none.
std::string expensive_holdings(const wire::Start& start) {
  if (!start.gpus.empty()) return "a CUDA context";
  const auto is_libtorch = [](dl_phdr_info* library, std::size_t, void*) {
    return std::string_view(library->dlpi_name).find("libtorch") == std::string_view::npos ? 0 : 1;
  };
  return ::dl_iterate_phdr(is_libtorch, nullptr) ? "libtorch" : "";
}

// Exceptions of the user's hooks stop here and end this process, which is replaced.
void call_interrupt_hooks(const CancelHooks& hooks) {
  std::string why = "an exception that is not a std::exception";
  try {
    return hooks.interrupt();
  } catch (const std::exception& thrown) {
    why = thrown.what();
  } catch (...) {
  }
  std::fprintf(stderr, "trireme: this process is replaced for the next attempt: %s\n", why.c_str());
  leave(0);
}

// Ends a process that the training function forked and that returned from the function like its parent. Only the parent
// reports to the run.
[[noreturn]] void leave_fork(const std::optional<wire::Failed>& failure) {
  if (failure) std::fprintf(stderr, "%s\n", told(failure->error_type, failure->message).c_str());
  leave(failure ? kFailedExitCode : 0);
}

}  // namespace

std::string told(const std::string& error_type, const std::string& message) {
  return error_type.empty() || message.empty() ? error_type + message : error_type + ": " + message;
}

Bytes Job::encode() const {
  List ended;
  for (const auto& each : past) ended.push_back(each.encode());
  Dict dict{{"function", function}, {"config", config}, {"past", std::move(ended)}, {"datasets", datasets}};
  return Bytes{base::to_msgpack(dict)};
}

base::Result<Job> Job::decode(const Bytes& bytes) {
  TRIREME_ASSIGN(auto value, base::parse_msgpack(bytes.data), "the job");
  const auto* dict = value.get_if<Dict>();
  if (!dict) return base::error("the job is not a dict");
  Job job;
  job.function = dict->at("function").as_string();
  job.config = dict->at("config").as_dict();
  for (const auto& each : dict->at("past").as_list()) job.past.push_back(PastFit::decode(each.as_dict()));
  job.datasets = dict->at("datasets").as_dict();
  return job;
}

Program::~Program() {
  if (session_ && session_->forked()) {
    // A process that the training function forked called exit(): the session belongs to its parent and is not closed.
    [[maybe_unused]] const auto* never_destroyed = new std::shared_ptr<worker::Session>(std::move(session_));
    return;
  }
  if (session_ && fitting_) {
    std::fprintf(stderr,
                 "trireme: exit() was called in the training function: this worker counts as failed; return from the "
                 "function, or throw\n");
  } else if (session_) {
    // Not reached by a worker that gets to its fit().
    std::fprintf(stderr,
                 "trireme: main() ended after %zu of the %zu fit() calls before this worker's: it must take the same "
                 "path in every process\n",
                 replayed_, job_.past.size() + 1);
  }
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
  check_names();
  if (std::getenv(kTicketVariable)) {
    join_run();
    return;
  }
  if (std::getenv(kAgentVariable)) {
    ::unsetenv(kAgentVariable);  // its workers are this program, too
    leave(agent::run({}));
  }
  auto done = runtime_.init(options);
  if (!done) throw ConfigError(done.error().message());
}

void Program::check_names() const {
  for (const auto& each : functions_) {
    if (find(each.name)->address == each.address) continue;
    throw std::logic_error(
        fmt::format("two different functions are registered as '{}': rename one of them", each.name));
  }
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
  work(registered->function, {});
}

void Program::work(const TrainFunction& function, const TrainerDatasets& datasets) {
  fitting_ = true;
  worker::prepare_stacks();
  worker::watch_termination(*session_);
  while (true) {
    const auto hooks = std::make_shared<CancelHooks>();
    session_->set_on_cancel([hooks] { hooks->cancel(); });
    const bool succeeded = run_attempt(function, datasets, hooks);
    if (!session_->wait_for_cancel()) leave(succeeded ? 0 : kFailedExitCode);
    call_interrupt_hooks(*hooks);
    session_->become_ready();
    auto start = session_->wait_start();
    if (!start) give_up(start.error().message());
    std::cout.flush();
    std::fflush(nullptr);
    if (auto redirected = worker::redirect_output(start->log_path); !redirected) {
      give_up(redirected.error().message());
    }
    auto job = Job::decode(start->payload);
    if (!job) give_up(job.error().message());
    job_ = *std::move(job);
  }
}

bool Program::run_attempt(const TrainFunction& function, const TrainerDatasets& datasets,
                          const std::shared_ptr<CancelHooks>& hooks) {
  Current current;
  current.hooks = hooks;
  current.context = context_of(session_->start());
  current.session = session_;
  WorkerDatasets shards(datasets, job_.datasets, current.context);
  current.shards = &shards;
  const wire::Start& start = session_->start();
  current.stored_positions = start.positions;
  if (start.checkpoint) {
    current.checkpoint =
        start.checkpoint_in_storage ? checkpoint_in_storage(start, *start.checkpoint) : Checkpoint(*start.checkpoint);
  }
  std::optional<wire::Failed> failure;
  Value value;
  {
    CurrentScope scope(current);
    session_->entered(expensive_holdings(start));
    failure = run_user_function(function, job_.config, value);
  }
  if (session_->forked()) leave_fork(failure);
  if (session_->cancelled()) return true;  // the result no longer matters
  if (!failure) {
    auto finished = shards.finish(start.positions);
    if (finished) finished = session_->finish(std::move(value), false);
    if (finished) return true;
    failure = failure_of("", finished.error().message());
  }
  // Printed to the log of the worker as well.
  std::fprintf(stderr, "%s\n", told(failure->error_type, failure->message).c_str());
  session_->fail(*std::move(failure));
  return false;
}

Result Program::fit(const TrainFunction& function, const TrainerDatasets& datasets,
                    const std::function<Result()>& run) {
  if (fitting_)
    throw std::logic_error("fit() was called while another fit() runs in this process; call one after the other");
  if (session_) return replay(function, datasets);
  fitting_ = true;
  const auto note = [this](PastFit past) {
    past_.push_back(std::move(past));
    fitting_ = false;
  };
  // Exceptions propagate to main(); they are only recorded here, for the workers of a later fit().
  try {
    Result result = run();
    note({PastFit::End::kReturned, result, "", {}});
    return result;
  } catch (const TrainingFailedError& failed) {
    note({PastFit::End::kFailed, {}, failed.what(), failed.worker_failures()});
    throw;
  } catch (const ConfigError& refused) {
    note({PastFit::End::kRefused, {}, refused.what(), {}});
    throw;
  } catch (const std::exception& thrown) {
    note({PastFit::End::kThrew, {}, thrown.what(), {}});
    throw;
  } catch (...) {
    note({PastFit::End::kThrew, {}, "an exception that is not a std::exception", {}});
    throw;
  }
}

Result Program::replay(const TrainFunction& function, const TrainerDatasets& datasets) {
  if (replayed_ < job_.past.size()) return job_.past[replayed_++].repeat();
  work(function, datasets);
}

}  // namespace trireme::api
