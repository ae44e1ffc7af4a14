#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "scale.h"
#include "wire/client.h"

namespace trireme::bench {
namespace {

constexpr int kJoiningAtOnce = 256;

struct Player {
  std::shared_ptr<wire::SocketChannel> channel;
  int fd = -1;
  int sent = 0;
  std::int64_t beats = 0;
  base::MonotonicTime next_beat;
};

asio::awaitable<void> join_as(asio::io_context& io, const Crowd& crowd, int rank, Player& player) {
  wire::Hello hello;
  hello.run_id = crowd.run_id;
  hello.rank = rank;
  hello.pid = rank + 1;
  hello.host = "host";
  auto joined = co_await wire::join(io, crowd.address, crowd.secret, hello);
  if (!joined) throw std::runtime_error(joined.error().message());
  player.channel = joined->channel;
  player.fd = player.channel->socket().native_handle();
}

void join_all(asio::io_context& io, const Crowd& crowd, int first, std::vector<Player>& players) {
  for (std::size_t begin = 0; begin < players.size(); begin += kJoiningAtOnce) {
    const std::size_t end = std::min(players.size(), begin + kJoiningAtOnce);
    for (std::size_t i = begin; i < end; ++i) {
      asio::co_spawn(io, join_as(io, crowd, first + static_cast<int>(i), players[i]),
                     [](const std::exception_ptr& failure) {
                       if (failure) std::rethrow_exception(failure);
                     });
    }
    io.run();
    io.restart();
  }
}

// From here on plain system calls: a player is not measured, but it competes with the controller for the CPU.
void send_frame(const Player& player, const wire::Message& message) {
  std::string frame;
  wire::append_frame(frame, wire::encode(message));
  if (::send(player.fd, frame.data(), frame.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(frame.size())) {
    ::_exit(0);  // the controller has completed its measurement and has exited
  }
}

bool all_was_read(const Player& player) {
  int unread = 0;
  return ::ioctl(player.fd, SIOCOUTQ, &unread) == 0 && unread == 0;
}

void drop_answers(const Player& player) {
  char buffer[16384];
  ssize_t got = 0;
  do {
    got = ::recv(player.fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got == 0) ::_exit(0);
  } while (got == sizeof buffer);
}

wire::Report report_of(int rank, int index) {
  wire::Report report;
  report.index = index;
  report.metrics = {{"loss", 0.25 + rank}, {"accuracy", 0.875}, {"epoch", index / 10}, {"step", index}};
  return report;
}

// A real worker sends nothing before the start message.
void wait_for_start(const std::vector<Player>& players) {
  for (const auto& player : players) {
    char first = 0;
    timeval patience{.tv_sec = 300, .tv_usec = 0};
    const int flags = player.channel->socket().native_non_blocking();
    player.channel->socket().native_non_blocking(false);
    ::setsockopt(player.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (::recv(player.fd, &first, 1, MSG_PEEK) != 1) throw std::runtime_error("no start message arrived");
    player.channel->socket().native_non_blocking(flags != 0);
  }
}

}  // namespace

void play_workers(const Crowd& crowd, int first, int last) {
  asio::io_context io;
  std::vector<Player> players(static_cast<std::size_t>(last - first));
  join_all(io, crowd, first, players);
  wait_for_start(players);
  const auto period = std::chrono::duration_cast<base::MonotonicTime::duration>(base::Seconds(crowd.heartbeat_s));
  const auto began = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < players.size(); ++i) {
    players[i].next_beat = began + period * static_cast<int>(i) / static_cast<int>(players.size());
  }
  while (true) {
    const auto now = std::chrono::steady_clock::now();
    bool idle = true;
    for (std::size_t i = 0; i < players.size(); ++i) {
      Player& player = players[i];
      if (player.sent < crowd.reports_each && all_was_read(player)) {
        send_frame(player, report_of(first + static_cast<int>(i), player.sent++));
        idle = false;
      }
      if (now < player.next_beat) continue;
      wire::Heartbeat heartbeat;
      heartbeat.sequence = ++player.beats;
      send_frame(player, heartbeat);
      player.next_beat += period;
      drop_answers(player);
    }
    if (idle) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace trireme::bench
