// Handles the messages from workers and the command line.

#include <fcntl.h>

#include <cerrno>

#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/commit.h"
#include "control/controller.h"
#include "storage/local_files.h"
#include "storage/run_names.h"
#include "wire/relay_protocol.h"
#include "wire/ticket.h"

namespace trireme::control {
namespace {

// One acknowledgement for many reports: it only frees room in the worker's window.
constexpr std::int64_t kAckEvery = 256;

wire::Reply reply(std::int64_t id, Value value) {
  wire::Reply made;
  made.id = id;
  made.value = std::move(value);
  return made;
}

wire::Reply refusal(std::int64_t id, std::string why) {
  wire::Reply made;
  made.id = id;
  made.failure = std::move(why);
  return made;
}

}  // namespace

base::Result<wire::Welcome> Controller::admit(const wire::Hello& hello) {
  if (hello.run_id != plan_.id) return base::error("it belongs to another run");
  // The secret itself, which only the user's commands have, also admits workers.
  const bool own = hello.key_name.empty();
  if (hello.role == "worker") {
    if (!own && hello.key_name != wire::worker_key_name(hello.attempt, hello.rank)) {
      return base::error("its key is of {}, not of rank {} of attempt {}", hello.key_name, hello.rank, hello.attempt);
    }
    if (hello.attempt != state_.attempt) return base::error("its attempt {} is over", hello.attempt);
    if (hello.rank < 0 || hello.rank >= static_cast<int>(peers_.size())) return base::error("no rank {}", hello.rank);
    if (peers_[static_cast<std::size_t>(hello.rank)].channel)
      return base::error("rank {} is already connected", hello.rank);
    // A rank joins once per attempt: a second connection would wait for a start message that was already sent.
    const WorkerPhase phase = state_.workers[static_cast<std::size_t>(hello.rank)].phase;
    if (phase != WorkerPhase::kAbsent && phase != WorkerPhase::kStarted) {
      return base::error("rank {} has already joined", hello.rank);
    }
  } else if (hello.role == wire::kRelayRole) {
    // Of an agent. It proves the key of a worker that it starts, and so does each worker that it carries.
    if (plan_.workers_here) return base::error("the workers are on this machine");
  } else if (hello.role != "client") {
    return base::error("unknown role '{}'", hello.role);
  } else if (!own) {
    return base::error("{} may not send requests of the command line", hello.key_name);
  }
  wire::Welcome welcome;
  welcome.heartbeat_s = plan_.heartbeat_s;
  welcome.lease_s = plan_.lease_s;
  return welcome;
}

bool Controller::current(const wire::Channel& channel) const {
  const auto& peer = channel.peer();
  return peer.role == "worker" && peer.attempt == state_.attempt &&
         peers_[static_cast<std::size_t>(peer.rank)].channel.get() == &channel;
}

Controller::Peer& Controller::peer_of(const wire::Channel& channel) {
  return peers_[static_cast<std::size_t>(channel.peer().rank)];
}

void Controller::opened(const std::shared_ptr<wire::Channel>& channel) {
  const auto& peer = channel->peer();
  if (peer.role != "worker") return;
  Peer& made = peers_[static_cast<std::size_t>(peer.rank)] = {};
  made.channel = channel;
  made.heard = clock_.now();
  handle(Connected{peer.rank, peer.pid, peer.host});
}

void Controller::closed(const std::shared_ptr<wire::Channel>& channel, const base::Error& why) {
  if (!current(*channel)) return;
  const int rank = channel->peer().rank;
  peers_[static_cast<std::size_t>(rank)].channel.reset();
  store_.forget(rank);
  handle(ConnectionLost{rank, why.message()});
}

void Controller::refused(const std::string& from, const base::Error& why) {
  append({{"event", "connection_refused"}, {"from", from}, {"why", why.message()}});
}

void Controller::received(const std::shared_ptr<wire::Channel>& channel, wire::Message message) {
  if (channel->peer().role == "client") {
    std::visit([&](auto& held) { serve(*channel, held); }, message);
    return;
  }
  if (!current(*channel)) return;
  peer_of(*channel).heard = clock_.now();
  std::visit([&](auto& held) { take(*channel, held); }, message);
}

template <typename T>
void Controller::serve(wire::Channel& channel, T&) {
  channel.close();
}

void Controller::serve(wire::Channel& channel, wire::StopRun& message) {
  channel.send(reply(message.id, true));
  handle(StopRequested{message.why, message.hard});
}

void Controller::serve(wire::Channel& channel, wire::GetStacks& message) {
  if (state_.phase != Phase::kRunning) {
    channel.send(refusal(message.id,
                         fmt::format("the run is {}: no rank is in the training function", to_string(state_.phase))));
    return;
  }
  collect_stacks("requested",
                 [to = channel.weak_from_this(), id = message.id](const HangReport& report, const std::string& path) {
                   if (auto open = to.lock()) open->send(reply(id, Dict{{"path", path}, {"text", report.text}}));
                 });
}

void Controller::serve(wire::Channel& channel, wire::PreemptRun& message) {
  for (int rank : message.ranks) {
    if (rank >= 0 && rank < static_cast<int>(peers_.size())) continue;
    channel.send(refusal(
        message.id, fmt::format("no rank {}: the run has {}", rank, base::count_of(std::ssize(peers_), "worker"))));
    return;
  }
  channel.send(reply(message.id, true));
  handle(PreemptionAnnounced{std::move(message.ranks), message.seconds, std::move(message.why)});
}

void Controller::serve(wire::Channel& channel, wire::SetCapacity& message) {
  if (!plan_.set_capacity) return channel.send(refusal(message.id, "this engine's capacity cannot be changed"));
  auto changed = plan_.set_capacity(message);
  channel.send(changed ? reply(message.id, *std::move(changed)) : refusal(message.id, changed.error().message()));
}

// Trireme's workers never do this, so nothing that follows can be trusted.
void Controller::refuse(wire::Channel& channel, const std::string& why) {
  base::log_warning("rank {} {}; its connection is closed", channel.peer().rank, why);
  channel.close();
}

template <typename T>
void Controller::take(wire::Channel& channel, T&) {
  refuse(channel, "sent a message that workers do not send");
}

void Controller::acknowledge(Peer& peer) {
  if (peer.acked == peer.reports || !peer.channel) return;
  peer.acked = peer.reports;
  wire::Ack ack;
  ack.through = peer.acked;
  peer.channel->send(ack);
}

void Controller::take(wire::Channel& channel, wire::Heartbeat& message) {
  acknowledge(peer_of(channel));
  channel.send(message);
}

void Controller::take(wire::Channel& channel, wire::Entered& message) {
  handle(FunctionEntered{channel.peer().rank, std::move(message.holds)});
}

void Controller::take(wire::Channel& channel, wire::Report& message) {
  const int rank = channel.peer().rank;
  Peer& peer = peer_of(channel);
  // Counted here and not in the commit book: a rank continues reporting until it learns that its attempt is over, and
  // the book accepts no more reports then.
  if (message.index != peer.next_report) {
    const std::string due =
        peer.next_report ? fmt::format("report {} was expected", *peer.next_report) : "it has not started";
    return refuse(channel, fmt::format("sent report {}, but {}", message.index, due));
  }
  if (message.checkpoint) {
    if (auto named = checkpoint::check_name(*message.checkpoint); !named) {
      return refuse(channel, fmt::format("sent report {}: {}", message.index, named.error().message()));
    }
  }
  peer.next_report = peer.reports = message.index + 1;
  // Reports of other ranks do not end the silence of a rank that is behind.
  if (base::Seconds(peer.heard - peer.reported).count() >= plan_.hang_timeout_s) hang_told_ = false;
  peer.reported = peer.heard;
  if (peer.reports - peer.acked >= kAckEvery) acknowledge(peer);
  handle(Reported{rank, message.index, std::move(message.metrics), std::move(message.checkpoint),
                  std::move(message.validation), std::move(message.positions), std::move(message.data)});
}

void Controller::take(wire::Channel& channel, wire::UploadDone& message) {
  const auto& peer = channel.peer();
  if (plan_.workers_here && peer.host == host_) memory_.hold(message.index, peer.pid, message.memory);
  handle(Uploaded{peer.rank, message.index, std::move(message.failure), std::move(message.files), message.nodes});
}

void Controller::take(wire::Channel& channel, wire::Done& message) {
  collectives_.finished(channel.peer().rank);
  handle(FunctionReturned{channel.peer().rank, {std::move(message.value), message.pickled}});
}

void Controller::take(wire::Channel& channel, wire::Failed& message) {
  handle(FunctionFailed{channel.peer().rank, std::move(message.error_type), std::move(message.message),
                        std::move(message.traceback), std::move(message.exception)});
}

// Of a node that does not see the run folder; data/digest_log.h writes it elsewhere. A disk error must not end the run:
// `trireme data verify` finds the missing lines.
void Controller::take(wire::Channel& channel, wire::DataLog& message) {
  if (auto named = checkpoint::check_name(message.name); !named) return refuse(channel, "sent a log with a wrong name");
  const std::string folder = fmt::format("{}/{}", plan_.path, storage::kDataFolder);
  const std::string path = fmt::format("{}/{}", folder, message.name);
  auto written = storage::make_folder(folder);
  if (written && message.name.ends_with(".json")) {
    written = storage::write_file_atomically(path, message.data.data);  // the same from every rank
  } else if (written) {
    const base::Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
    const std::string& data = message.data.data;
    const bool whole = file.valid() && ::write(file.get(), data.data(), data.size()) == std::ssize(data);
    if (!whole) written = base::system_error("could not write " + path, errno);
  }
  if (!written) base::log_warning("{}", written.error().message());
}

void Controller::take(wire::Channel& channel, wire::Drained&) { handle(UploadsDrained{channel.peer().rank}); }

void Controller::take(wire::Channel& channel, wire::Aborted&) { handle(CollectivesAborted{channel.peer().rank}); }

void Controller::take(wire::Channel& channel, wire::Ready&) { handle(BecameReady{channel.peer().rank}); }

void Controller::take(wire::Channel& channel, wire::PreemptionNotice& message) {
  handle(PreemptionAnnounced{{channel.peer().rank}, std::nullopt, std::move(message.why)});
}

void Controller::take(wire::Channel& channel, wire::ListCheckpoints& message) {
  list_requests_.push_back({channel.weak_from_this(), message});
  answer_lists();
}

void Controller::answer_lists() {
  const bool validating =
      std::any_of(state_.kept.begin(), state_.kept.end(), [](auto& each) { return each.pending(); });
  std::erase_if(list_requests_, [&](const ListRequest& request) {
    auto open = request.channel.lock();
    const auto& message = request.message;
    const bool waits = state_.commits_in_flight > 0 || state_.commits.waits_below(message.reports) ||
                       (message.validated && validating);
    if (open && waits && !message.now) return false;
    if (open) open->send(reply(message.id, to_list(ranked(state_.kept, plan_.rules.checkpoints), plan_.storage_path)));
    return true;
  });
}

void Controller::take(wire::Channel& channel, wire::StoreSet& message) {
  store_.set(message.key, std::move(message.value.data));
  channel.send(reply(message.id, true));
}

// Later answers hold the channel weakly: a rank that has disconnected needs none.
void Controller::take(wire::Channel& channel, wire::StoreGet& message) {
  store_.get({channel.peer().rank, message.id, message.timeout_s}, message.key,
             [to = channel.weak_from_this(), id = message.id](const std::string& value) {
               if (auto open = to.lock()) open->send(reply(id, Bytes{value}));
             });
}

void Controller::take(wire::Channel& channel, wire::StoreWait& message) {
  store_.wait({channel.peer().rank, message.id, message.timeout_s}, message.keys,
              [to = channel.weak_from_this(), id = message.id](const std::string&) {
                if (auto open = to.lock()) open->send(reply(id, true));
              });
}

void Controller::take(wire::Channel& channel, wire::StoreMultiGet& message) {
  store_.multi_get({channel.peer().rank, message.id, message.timeout_s}, message.keys,
                   [to = channel.weak_from_this(), id = message.id](const std::vector<std::string>& values) {
                     List list;
                     for (const auto& value : values) list.push_back(Bytes{value});
                     if (auto open = to.lock()) open->send(reply(id, std::move(list)));
                   });
}

void Controller::take(wire::Channel& channel, wire::StoreAppend& message) {
  store_.append(message.key, message.value.data);
  channel.send(reply(message.id, true));
}

void Controller::take(wire::Channel& channel, wire::StoreAdd& message) {
  auto sum = store_.add(message.key, message.amount);
  channel.send(sum ? reply(message.id, *sum) : refusal(message.id, sum.error().message()));
}

void Controller::take(wire::Channel& channel, wire::StoreCheck& message) {
  channel.send(reply(message.id, store_.contains(message.keys)));
}

void Controller::take(wire::Channel& channel, wire::StoreDelete& message) {
  channel.send(reply(message.id, store_.erase(message.key)));
}

void Controller::take(wire::Channel& channel, wire::StoreCompareSet& message) {
  auto held = store_.compare_set(message.key, message.expected.data, std::move(message.desired.data));
  channel.send(reply(message.id, Bytes{std::move(held)}));
}

void Controller::take(wire::Channel& channel, wire::StoreCount& message) {
  channel.send(reply(message.id, store_.size()));
}

void Controller::take(wire::Channel& channel, wire::Barrier& message) {
  collectives_.come(channel.peer().rank, message.sequence, "barrier", "",
                    [to = channel.weak_from_this(), id = message.id](const base::Result<std::string>& met) {
                      auto open = to.lock();
                      if (open) open->send(met ? reply(id, true) : refusal(id, met.error().message()));
                    });
}

void Controller::take(wire::Channel& channel, wire::Broadcast& message) {
  std::string data = message.data ? std::move(message.data->data) : "";
  collectives_.come(channel.peer().rank, message.sequence, "broadcast", std::move(data),
                    [to = channel.weak_from_this(), id = message.id](const base::Result<std::string>& met) {
                      auto open = to.lock();
                      if (open) open->send(met ? reply(id, Bytes{*met}) : refusal(id, met.error().message()));
                    });
}

}  // namespace trireme::control
