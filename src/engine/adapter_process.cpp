#include "engine/adapter_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <asio/read_until.hpp>
#include <asio/write.hpp>
#include <cmath>
#include <fstream>
#include <istream>

#include "base/environment.h"
#include "base/json.h"
#include "base/text.h"

namespace trireme::engine {
namespace {

constexpr std::size_t kShownLines = 12;
constexpr base::Seconds kEndPatience{2.0};

std::string last_lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(std::move(line));
    if (lines.size() > kShownLines) lines.pop_front();
  }
  return base::join({lines.begin(), lines.end()}, "\n  ");
}

}  // namespace

Result<std::unique_ptr<AdapterProcess>> AdapterProcess::start(asio::io_context& io, std::vector<std::string> argv,
                                                              const std::filesystem::path& log, Owner owner) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return base::system_error("socketpair", errno);
  base::Fd ours(ends[0]);
  const base::Fd theirs(ends[1]);
  std::error_code failure;
  std::filesystem::create_directories(log.parent_path(), failure);  // opening the file reports a failure
  const base::Fd output(::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  if (!output.valid()) return base::system_error(fmt::format("could not open {}", log.native()), errno);
  TRIREME_ASSIGN(auto process, launch({.argv = std::move(argv),
                                       .env = base::environment(),
                                       .cwd = {},
                                       .stdout_fd = output.get(),
                                       .stderr_fd = output.get(),
                                       .passed_fd = theirs.get(),
                                       .passed_variable = "TRIREME_ENGINE_FD",
                                       .parent_death_signal = 0}));
  std::unique_ptr<AdapterProcess> adapter(
      new AdapterProcess(io, std::move(process), std::move(ours), log, std::move(owner)));
  adapter->read();
  return adapter;
}

AdapterProcess::AdapterProcess(asio::io_context& io, Process process, base::Fd socket, std::filesystem::path log,
                               Owner owner)
    : process_(std::move(process)),
      socket_(io, asio::local::stream_protocol(), socket.release()),
      log_(std::move(log)),
      owner_(std::move(owner)) {}

AdapterProcess::~AdapterProcess() { end(base::Seconds::zero()); }

void AdapterProcess::read() {
  asio::async_read_until(socket_, received_, '\n', [this](const asio::error_code& failure, std::size_t) {
    if (failure == asio::error::operation_aborted) return;
    if (failure) return lose("");
    std::istream lines(&received_);
    std::string line;
    std::getline(lines, line);
    auto event = base::parse_json_dict(line);
    if (!event) return lose(fmt::format("sent something that is not JSON ({})", event.error().message()));
    owner_.event(*std::move(event));
    if (socket_.is_open()) read();
  });
}

void AdapterProcess::lose(std::string why) {
  asio::error_code ignored;  // closing twice is fine
  socket_.close(ignored);
  owner_.gone(std::move(why));
}

void AdapterProcess::send(const Dict& request) {
  queued_.push_back(base::to_json(request) + "\n");
  if (queued_.size() == 1) write();
}

void AdapterProcess::write() {
  if (!socket_.is_open()) return;
  asio::async_write(socket_, asio::buffer(queued_.front()), [this](const asio::error_code& failure, std::size_t) {
    if (failure) return;  // the reader finds out why
    queued_.pop_front();
    if (!queued_.empty()) write();
  });
}

bool AdapterProcess::wait(base::Seconds patience) {
  if (status_) return true;
  pollfd waited{.fd = process_.pidfd.get(), .events = POLLIN, .revents = 0};
  if (::poll(&waited, 1, static_cast<int>(std::ceil(patience.count() * 1000))) <= 0) return false;
  status_ = reap(process_);
  return true;
}

void AdapterProcess::end(base::Seconds patience) {
  asio::error_code ignored;  // closing twice is fine
  socket_.close(ignored);
  if (status_ || wait(patience)) return;
  signal_group(process_, SIGKILL);
  wait(base::Seconds(5.0));
}

std::string AdapterProcess::epitaph() {
  std::string text = wait(kEndPatience) ? fmt::format("ended with {}", to_string(*status_)) : "is still running";
  const std::string lines = last_lines_of(log_);
  if (!lines.empty()) text += fmt::format("; last lines of {}:\n  {}", log_.native(), lines);
  return text;
}

}  // namespace trireme::engine
