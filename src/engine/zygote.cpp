#include "engine/zygote.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>

#include "base/json.h"
#include "base/log.h"

namespace trireme::engine {
namespace {

constexpr std::size_t kHeaderSize = 4;
constexpr std::size_t kMaxFrame = 16U << 20;
constexpr std::size_t kMaxFdsPerRead = 16;

std::string framed(const std::string& body) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>((body.size() >> shift) & 0xff);
  return bytes + body;
}

std::size_t frame_length(std::string_view header) {
  std::size_t length = 0;
  for (const char byte : header.substr(0, kHeaderSize)) length = (length << 8) | static_cast<unsigned char>(byte);
  return length;
}

List to_list(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

// JSON carries UTF-8 only; file names and variables may hold any byte.
bool survives_json(const std::string& text) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) return true;
  const auto back = base::parse_json(base::to_json(text));
  return back && *back == Value(text);
}

// Without variables that JSON cannot carry: a process with one of them is not forked.
Dict to_dict(const std::map<std::string, std::string>& env) {
  Dict made;
  for (const auto& [name, value] : env) {
    if (survives_json(name) && survives_json(value)) made[name] = value;
  }
  return made;
}

// Read by the loader, the allocator or the interpreter before the program starts.
bool counts_at_start_only(const std::string& name) {
  constexpr std::array<std::string_view, 6> kPrefixes = {"LD_",        "MALLOC_",        "GLIBC_TUNABLES",
                                                         "PYTHONHOME", "PYTHONHASHSEED", "PYTHONMALLOC"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view p) { return name.starts_with(p); });
}

using Environment = std::map<std::string, std::string>;

Environment start_variables(const Environment& env) {
  Environment kept;
  std::copy_if(env.begin(), env.end(), std::inserter(kept, kept.end()),
               [](const auto& item) { return counts_at_start_only(item.first); });
  return kept;
}

}  // namespace

Zygote::Zygote(Process process, base::Fd socket, Environment env)
    : process_(std::move(process)), socket_(std::move(socket)), env_(std::move(env)) {}

Result<Zygote> Zygote::start(const std::vector<std::string>& argv, Environment env) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return base::system_error("socketpair", errno);
  base::Fd ours(ends[0]);
  const base::Fd theirs(ends[1]);
  Environment started_with = start_variables(env);
  // OpenBLAS would start its threads on import, and CUDA must not be used before a worker is forked.
  env["OPENBLAS_NUM_THREADS"] = "1";
  env.emplace("JE_ARROW_MALLOC_CONF", "background_thread:false");  // pyarrow's allocator has its own thread
  env["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1";
  // The zygote watches the driver itself and then kills the groups of its children. A parent-death signal would leave
  // it no time for that.
  TRIREME_ASSIGN(auto process, launch({.argv = argv,
                                       .env = std::move(env),
                                       .cwd = "",
                                       .stdout_fd = 2,  // output of modules during import is not the script's output
                                       .stderr_fd = 2,
                                       .passed_fd = theirs.get(),
                                       .passed_variable = "TRIREME_ZYGOTE_FD",
                                       .parent_death_signal = 0}));
  return Zygote(std::move(process), std::move(ours), std::move(started_with));
}

short Zygote::events() const { return static_cast<short>(POLLIN | (outgoing_.empty() ? 0 : POLLOUT)); }

bool Zygote::suits(const ProcessSpec& spec) const {
  if (start_variables(spec.env) != env_) return false;
  const auto all_survive = [](const std::vector<std::string>& texts) {
    return std::all_of(texts.begin(), texts.end(), survives_json);
  };
  const bool env_survives = std::all_of(spec.env.begin(), spec.env.end(), [](const auto& item) {
    return survives_json(item.first) && survives_json(item.second);
  });
  return env_survives && survives_json(spec.cwd) && survives_json(spec.ticket) && all_survive(spec.python->sys_path) &&
         all_survive(spec.python->argv);
}

bool Zygote::preload(const std::vector<std::string>& modules, const std::vector<std::string>& sys_path,
                     const Environment& env) {
  List fresh;
  for (const auto& module : modules) {
    if (asked_.insert(module).second) fresh.emplace_back(module);
  }
  if (fresh.empty()) return false;
  Dict message;
  message["op"] = "preload";
  message["modules"] = std::move(fresh);
  message["sys_path"] = to_list(sys_path);
  message["env"] = to_dict(env);
  send(message, base::Fd());
  return true;
}

void Zygote::fork(std::uint64_t id, const ProcessSpec& spec, base::Fd log) {
  Dict message;
  message["op"] = "fork";
  message["id"] = id;
  message["env"] = to_dict(spec.env);
  message["cwd"] = spec.cwd;
  message["sys_path"] = to_list(spec.python->sys_path);
  message["argv"] = to_list(spec.python->argv);
  message["ticket"] = spec.ticket;
  send(message, std::move(log));
}

void Zygote::send(const Dict& message, base::Fd fd) {
  outgoing_.push_back({.bytes = framed(base::to_json(message)), .sent = 0, .fd = std::move(fd)});
}

Result<void> Zygote::flush() {
  while (!outgoing_.empty()) {
    Frame& frame = outgoing_.front();
    iovec data{.iov_base = frame.bytes.data() + frame.sent, .iov_len = frame.bytes.size() - frame.sent};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    if (frame.fd.valid()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      const int fd = frame.fd.get();
      std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    const auto sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return {};
    if (sent < 0) return base::system_error("send to the warm Python process", errno);
    frame.fd.reset();
    frame.sent += static_cast<std::size_t>(sent);
    if (frame.sent == frame.bytes.size()) outgoing_.pop_front();
  }
  return {};
}

Result<std::vector<Zygote::Message>> Zygote::receive() {
  bool more = true;
  Result<void> read;
  while (more && read) read = read_some(more);
  auto messages = take_frames();
  if (messages && messages->empty() && !read) return std::move(read).error();
  return messages;
}

Result<void> Zygote::read_some(bool& more) {
  std::array<char, 65536> buffer;
  iovec data{.iov_base = buffer.data(), .iov_len = buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxFdsPerRead)> control{};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const auto got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && errno == EINTR) return {};
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    more = false;
    return {};
  }
  if (got < 0) return base::system_error("receive from the warm Python process", errno);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      received_fds_.emplace_back(fd);
    }
  }
  if (got == 0) return base::error("the warm Python process closed its socket");
  incoming_.append(buffer.data(), static_cast<std::size_t>(got));
  return {};
}

Result<std::vector<Zygote::Message>> Zygote::take_frames() {
  std::vector<Message> messages;
  std::size_t start = 0;
  while (incoming_.size() - start >= kHeaderSize) {
    const std::string_view rest = std::string_view(incoming_).substr(start);
    const std::size_t length = frame_length(rest);
    if (length > kMaxFrame) return base::error("the warm Python process sent a frame of {} bytes", length);
    if (rest.size() < kHeaderSize + length) break;
    TRIREME_ASSIGN(const Dict dict, base::parse_json_dict(rest.substr(kHeaderSize, length)),
                   "the warm Python process sent invalid JSON");
    TRIREME_ASSIGN(auto message, decode(dict), "the warm Python process sent {}", base::to_json(dict));
    messages.push_back(std::move(message));
    start += kHeaderSize + length;
  }
  incoming_.erase(0, start);
  return messages;
}

Result<Zygote::Message> Zygote::decode(const Dict& message) {
  const auto number = [&](const char* name) -> Result<std::int64_t> {
    const Value* value = message.find(name);
    if (!value || !value->get_if<std::int64_t>()) return base::error("'{}' is not a number", name);
    return *value->get_if<std::int64_t>();
  };
  const auto text = [](const Value* value) {
    const auto* held = value ? value->get_if<std::string>() : nullptr;
    return held ? *held : std::string();
  };
  const std::string op = text(message.find("op"));
  if (op == "ready") {
    TRIREME_ASSIGN(const auto pid, number("pid"));
    return Message(Ready{.pid = static_cast<int>(pid)});
  }
  if (op == "preloaded") {
    Preloaded preloaded;
    if (const Value* failed = message.find("failed"); failed && failed->get_if<Dict>()) {
      for (const auto& [module, why] : failed->as_dict()) preloaded.failed[module] = text(&why);
    }
    return Message(std::move(preloaded));
  }
  if (op == "replacing") return Message(Replacing{text(message.find("module")), text(message.find("why"))});
  if (op == "refused") {
    TRIREME_ASSIGN(const auto id, number("id"));
    return Message(Refused{.id = static_cast<std::uint64_t>(id), .why = text(message.find("why"))});
  }
  if (op == "exit") {
    TRIREME_ASSIGN(const auto pid, number("pid"));
    TRIREME_ASSIGN(const auto status, number("status"));
    return Message(ChildExited{.pid = static_cast<int>(pid), .status = from_wait_status(static_cast<int>(status))});
  }
  if (op == "forked") {
    TRIREME_ASSIGN(const auto id, number("id"));
    TRIREME_ASSIGN(const auto pid, number("pid"));
    if (pid <= 1) return base::error("pid {} is not a worker", pid);
    if (received_fds_.empty()) return base::error("the pidfd of {} is missing", pid);
    Forked forked{.id = static_cast<std::uint64_t>(id), .process = {.pid = static_cast<int>(pid), .pidfd = {}}};
    forked.process.pidfd = std::move(received_fds_.front());
    received_fds_.pop_front();
    return Message(std::move(forked));
  }
  return base::error("unknown op '{}'", op);
}

}  // namespace trireme::engine
