#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/config_fields.h"
#include "base/fields.h"
#include "trireme/config.h"
#include "trireme/context.h"

// Every message of the control plane, described once: MESSAGE(number, Name, table), and each table is a list of
// FIELD(type, name, default, what it means). Structs, encoding, decoding and docs/wire_protocol.md come from these
// lists.
//
// A number is never used again for something else. A change that an older peer would misread raises kProtocolVersion.

namespace trireme::wire {

inline constexpr int kProtocolVersion = 9;

// clang-format off

using Variables = std::map<std::string, std::string>;  // of an environment

// Both sides prove the secret before anything else is read; see handshake.h.
#define TRIREME_HELLO(FIELD)                                                                                     \
  FIELD(int, version, kProtocolVersion, "protocol version of the sender")                                        \
  FIELD(std::string, run_id, {}, "the run that the sender wants to join")                                        \
  FIELD(std::string, role, "worker", "worker, agent, relay for the agent's connection that carries those of its workers, storage for a worker's file requests, memory for those between agents and from the driver, or client for the command line") \
  FIELD(int, rank, 0, "rank of the worker, or number of the agent")                                                                   \
  FIELD(int, attempt, 0, "attempt that the worker belongs to; workers of earlier ones are refused")              \
  FIELD(int, pid, 0, "process id of the sender")                                                                 \
  FIELD(std::string, host, {}, "host of the sender")                                                             \
  FIELD(std::string, key_name, {}, "name of the key that the sender proves; empty: the secret of the run itself")       \
  FIELD(Bytes, nonce, {}, "32 random bytes that the controller's proof must answer")                             \
  FIELD(Bytes, proof, {}, "HMAC-SHA256 over the challenge, the nonce and all fields above")

#define TRIREME_WELCOME(FIELD)                                                                                   \
  FIELD(Bytes, proof, {}, "HMAC-SHA256 over the hello's nonce and the challenge")                                \
  FIELD(double, heartbeat_s, 0.5, "interval of the worker's heartbeats")                                         \
  FIELD(double, lease_s, 10.0, "a worker that receives nothing for this long exits")

#define TRIREME_HEARTBEAT(FIELD)                                                                                 \
  FIELD(std::int64_t, sequence, 0, "counts up; the answer carries the same number")

// Begins with what the training function sees as its context.
#define TRIREME_START(FIELD)                                                                                     \
  TRIREME_CONTEXT(FIELD)                                                                                         \
  FIELD(std::string, storage_path, {}, "folder of the run in its storage: checkpoints")                          \
  FIELD(std::string, storage_uri, {}, "the same as a URI, for workers that open the file system from it; empty: a local folder") \
  FIELD(std::string, files_address, {}, "where nodes that do not share the driver's file system reach its files; empty: there are none") \
  FIELD(Variables, code, {}, "folders on the driver's machine with code that the workers import -> their digests") \
  FIELD(std::string, folder, {}, "working directory on the driver's machine; empty: the worker is in it")         \
  FIELD(CheckpointConfig, checkpoint_config, {}, "how checkpoints are uploaded")                                 \
  FIELD(Bytes, payload, {}, "what to run: for Python a pickle, for C++ the function's name and configuration")   \
  FIELD(std::optional<std::string>, checkpoint, {}, "folder of the checkpoint to resume from")                   \
  FIELD(bool, checkpoint_in_storage, true, "whether it is in the run's storage; false if the user gave it")      \
  FIELD(Dict, memory, {}, "files of that checkpoint that are in memory: path in it -> path to open")             \
  FIELD(std::int64_t, next_report, 0, "number of this worker's next report")                                     \
  FIELD(Dict, positions, {}, "positions in the data that the checkpoint was made at, by name")                   \
  FIELD(std::string, log_path, {}, "where a worker that is kept writes its output from now on; empty: as before")

#define TRIREME_NO_FIELDS(FIELD)

#define TRIREME_ENTERED(FIELD)                                                                                   \
  FIELD(std::string, holds, {},                                                                                  \
        "state of this process that is expensive to recreate, for example a CUDA context; empty: none")

#define TRIREME_REPORT(FIELD)                                                                                    \
  FIELD(std::int64_t, index, 0, "counts this rank's reports")                                                    \
  FIELD(Dict, metrics, {}, "the reported metrics")                                                               \
  FIELD(std::optional<std::string>, checkpoint, {}, "folder name of the checkpoint that this rank adds to")      \
  FIELD(Value, validation, {}, "null, or what to validate the checkpoint with: fn_kwargs, timeout_s")            \
  FIELD(Dict, positions, {}, "this rank's positions in its data, by name; stored with its checkpoint")           \
  FIELD(Dict, data, {}, "counts of the data that this rank has read so far: rows, bytes, wait_s, logged")

#define TRIREME_UPLOAD_DONE(FIELD)                                                                               \
  FIELD(std::int64_t, index, 0, "the report whose files are durable now")                                        \
  FIELD(List, files, {}, "what this rank has stored: path, size and XXH3 of each file")                          \
  FIELD(Dict, memory, {}, "files that this worker also has in memory: path in the checkpoint -> descriptor")     \
  FIELD(std::optional<std::string>, failure, {}, "reason why the upload failed; None: it succeeded")             \
  FIELD(int, nodes, 0, "number of nodes that hold the files in the memory of their agents; 0: the run's storage has them")

#define TRIREME_ACK(FIELD)                                                                                       \
  FIELD(std::int64_t, through, 0, "all reports below this number are recorded")

#define TRIREME_DONE(FIELD)                                                                                      \
  FIELD(Value, value, {}, "what the function returned; rank 0 only")                                             \
  FIELD(bool, pickled, false, "whether it is a pickle, because only Python can represent it")

#define TRIREME_FAILED(FIELD)                                                                                    \
  FIELD(std::string, error_type, {}, "class of the exception")                                                   \
  FIELD(std::string, message, {}, "its text")                                                                    \
  FIELD(std::string, traceback, {}, "its traceback, as the language prints it")                                  \
  FIELD(std::optional<Bytes>, exception, {}, "the exception itself, opaque to the core")

#define TRIREME_STOP(FIELD)                                                                                      \
  FIELD(std::string, why, {}, "reason, for the log")                                                             \
  FIELD(bool, hard, false, "kill at once, without a grace period")

#define TRIREME_COMMITTED(FIELD)                                                                                 \
  FIELD(std::int64_t, index, 0, "the report whose checkpoint is committed")

#define TRIREME_LIST_CHECKPOINTS(FIELD)                                                                          \
  FIELD(std::int64_t, id, 0, "request number; the reply lists the retained checkpoints, worst first")            \
  FIELD(std::int64_t, reports, 0, "answered when every checkpoint of a report below this number is committed")   \
  FIELD(bool, validated, false, "and validated")                                                                 \
  FIELD(bool, now, false, "answered at once with the checkpoints known so far")

#define TRIREME_STORE_SET(FIELD)                                                                                 \
  FIELD(std::int64_t, id, 0, "request number; the reply carries it")                                             \
  FIELD(std::string, key, {}, "")                                                                                \
  FIELD(Bytes, value, {}, "")

#define TRIREME_STORE_GET(FIELD)                                                                                 \
  FIELD(std::int64_t, id, 0, "request number")                                                                   \
  FIELD(std::string, key, {}, "answered as soon as the key is set")                                              \
  FIELD(double, timeout_s, 0.0, "how long the worker waits for the answer")

#define TRIREME_STORE_ADD(FIELD)                                                                                 \
  FIELD(std::int64_t, id, 0, "request number")                                                                   \
  FIELD(std::string, key, {}, "its value is a number as decimal text; a missing key counts as 0")                \
  FIELD(std::int64_t, amount, 0, "what to add")

#define TRIREME_STORE_WAIT(FIELD)                                                                                \
  FIELD(std::int64_t, id, 0, "request number")                                                                   \
  FIELD(std::vector<std::string>, keys, {}, "answered when all of them are set")                                 \
  FIELD(double, timeout_s, 0.0, "how long the worker waits for the answer")

#define TRIREME_STORE_CHECK(FIELD)                                                                               \
  FIELD(std::int64_t, id, 0, "request number; answered at once: whether all of them are set")                    \
  FIELD(std::vector<std::string>, keys, {}, "")

#define TRIREME_STORE_DELETE(FIELD)                                                                              \
  FIELD(std::int64_t, id, 0, "request number")                                                                   \
  FIELD(std::string, key, {}, "the reply contains whether it existed")

#define TRIREME_STORE_COMPARE_SET(FIELD)                                                                         \
  FIELD(std::int64_t, id, 0, "request number")                                                                   \
  FIELD(std::string, key, {}, "")                                                                                \
  FIELD(Bytes, expected, {}, "empty: also matches a missing key")                                                \
  FIELD(Bytes, desired, {}, "")

#define TRIREME_STORE_APPEND(FIELD)                                                                              \
  FIELD(std::int64_t, id, 0, "request number")                                                                   \
  FIELD(std::string, key, {}, "a missing key counts as empty")                                                   \
  FIELD(Bytes, value, {}, "what to add at the end")

#define TRIREME_STORE_MULTI_GET(FIELD)                                                                           \
  FIELD(std::int64_t, id, 0, "request number; the reply lists the values")                                       \
  FIELD(std::vector<std::string>, keys, {}, "answered when all of them are set")                                 \
  FIELD(double, timeout_s, 0.0, "how long the worker waits for the answer")

#define TRIREME_COLLECTIVE_TIMEOUT(FIELD)                                                                        \
  FIELD(double, seconds, 0.0, "after this time a collective operation of this worker's process groups fails")

#define TRIREME_STORE_COUNT(FIELD)                                                                               \
  FIELD(std::int64_t, id, 0, "request number; the reply contains the number of keys")

#define TRIREME_BARRIER(FIELD)                                                                                   \
  FIELD(std::int64_t, id, 0, "request number; answered when every rank has called it")                           \
  FIELD(std::int64_t, sequence, 0, "number of the barrier or broadcast in this attempt, from 0")

#define TRIREME_BROADCAST(FIELD)                                                                                 \
  FIELD(std::int64_t, id, 0, "request number; answered with rank 0's data when every rank has called it")        \
  FIELD(std::int64_t, sequence, 0, "number of the barrier or broadcast in this attempt, from 0")                 \
  FIELD(std::optional<Bytes>, data, {}, "from rank 0 only")

#define TRIREME_REPLY(FIELD)                                                                                     \
  FIELD(std::int64_t, id, 0, "the request that this answers")                                                    \
  FIELD(Value, value, {}, "the answer")                                                                          \
  FIELD(std::optional<std::string>, failure, {}, "why there is no answer")

#define TRIREME_STOP_RUN(FIELD)                                                                                  \
  FIELD(std::int64_t, id, 0, "request number")                                                                   \
  FIELD(std::string, why, {}, "who requested it")                                                                \
  FIELD(bool, hard, false, "kill at once, without a grace period")

#define TRIREME_CANCEL(FIELD)                                                                                    \
  FIELD(std::string, why, {}, "reason, for the log")                                                             \
  FIELD(bool, may_decline, false, "whether the worker may exit instead, if its framework cannot be reused")

#define TRIREME_LEAVE_AT(FIELD)                                                                                  \
  FIELD(std::int64_t, index, 0, "leave the function with the first checkpoint of a report of this number or later")

#define TRIREME_PREEMPTION(FIELD)                                                                                \
  FIELD(Dict, nodes, {}, "ranks that will be preempted, by host")                                                \
  FIELD(double, seconds, 0.0, "time left")                                                                       \
  FIELD(std::string, why, {}, "source of the announcement")

#define TRIREME_PREEMPTION_NOTICE(FIELD)                                                                         \
  FIELD(std::string, why, {}, "the signal that this worker received, and its sender")

#define TRIREME_STACK_REQUEST(FIELD)                                                                             \
  FIELD(std::int64_t, id, 0, "request number")                                                                   \

#define TRIREME_STACK(FIELD)                                                                                     \
  FIELD(std::int64_t, id, 0, "the request that this answers")                                                    \
  FIELD(std::string, where, {}, "the innermost frame of the user's code, for the summary")                       \
  FIELD(std::string, text, {}, "the stacks of all threads, Python's and native ones")

#define TRIREME_WAIT_REQUEST(FIELD)                                                                              \
  FIELD(std::int64_t, id, 0, "request number")                                                                   \

#define TRIREME_WAITS(FIELD)                                                                                     \
  FIELD(std::int64_t, id, 0, "the request that this answers")                                                    \
  FIELD(std::vector<std::int64_t>, requests, {}, "requests that threads of this worker still wait for")          \
  FIELD(std::vector<std::string>, busy, {}, "its other threads that are not blocked")

#define TRIREME_GET_STACKS(FIELD)                                                                                \
  FIELD(std::int64_t, id, 0, "request number; the reply has the file's path and the text")

#define TRIREME_PREEMPT_RUN(FIELD)                                                                               \
  FIELD(std::int64_t, id, 0, "request number")                                                                   \
  FIELD(std::vector<int>, ranks, {}, "ranks that will be preempted; empty: all")                                 \
  FIELD(std::optional<double>, seconds, {}, "time left; None: FailureConfig.preemption_grace_s")                 \
  FIELD(std::string, why, {}, "source of the announcement")

#define TRIREME_SET_CAPACITY(FIELD)                                                                              \
  FIELD(std::int64_t, id, 0, "request number; the reply has the new capacity, or why it is unchanged")           \
  FIELD(std::optional<double>, num_cpus, {}, "")                                                                 \
  FIELD(std::optional<double>, num_gpus, {}, "")                                                                 \
  FIELD(Resources, resources, {}, "others; those that are not listed are unchanged")

// Between the driver's engine and the agent of a node, on a connection of its own.
#define TRIREME_AGENT_INFO(FIELD)                                                                                \
  FIELD(std::string, version, {}, "version of trireme on the node")                                              \
  FIELD(double, cpus, 0.0, "CPUs that processes may use there")                                                  \
  FIELD(std::vector<Dict>, gpus, {}, "its GPUs: id, uuid and type of each")                                      \
  FIELD(std::string, python, {}, "Python interpreter of the node; empty: none")                                  \
  FIELD(std::string, memory_address, {}, "where other agents and the driver reach the checkpoints in its memory")

#define TRIREME_AGENT_WARM_UP(FIELD)                                                                             \
  FIELD(Variables, env, {}, "environment of the warm process")                                                   \
  FIELD(std::vector<std::string>, preload, {}, "modules to import")

#define TRIREME_AGENT_PEERS(FIELD)                                                                               \
  FIELD(Variables, addresses, {}, "number of every agent of the engine -> its memory_address")

#define TRIREME_AGENT_START(FIELD)                                                                               \
  FIELD(std::int64_t, gang, 0, "")                                                                               \
  FIELD(int, bundle, 0, "")                                                                                      \
  FIELD(std::string, host, {}, "the node's name, for messages")                                                  \
  FIELD(std::string, label, {}, "\"rank 3\", for messages")                                                      \
  FIELD(std::vector<std::string>, argv, {}, "executed if the process cannot be forked")                          \
  FIELD(Variables, env, {}, "environment of the driver; the agent replaces what belongs to a node")              \
  FIELD(std::string, cwd, {}, "working directory")                                                               \
  FIELD(std::string, log_path, {}, "path of its log on the driver's machine")                                    \
  FIELD(std::string, ticket, {}, "ticket of the worker, JSON")                                                   \
  FIELD(std::vector<std::string>, visible_gpus, {}, "ids of the GPUs that it sees; empty: unchanged")            \
  FIELD(bool, python, false, "a Python worker: it may be forked from the warm process")                          \
  FIELD(std::vector<std::string>, preload, {}, "modules that it needs")                                          \
  FIELD(std::vector<std::string>, sys_path, {}, "its sys.path")                                                  \
  FIELD(std::vector<std::string>, python_argv, {}, "its sys.argv")                                               \
  FIELD(bool, spread, false, "the gang has other nodes: collectives need a network interface")

#define TRIREME_AGENT_KILL(FIELD)                                                                                \
  FIELD(std::int64_t, gang, 0, "")                                                                               \
  FIELD(int, bundle, 0, "")                                                                                      \
  FIELD(double, grace_s, 0.0, "time between SIGTERM and SIGKILL; 0: SIGKILL at once")

#define TRIREME_AGENT_RELEASE(FIELD)                                                                             \
  FIELD(std::int64_t, gang, 0, "gang whose processes are killed")

#define TRIREME_AGENT_RELEASED(FIELD)                                                                            \
  FIELD(std::int64_t, gang, 0, "gang whose processes have all ended")

#define TRIREME_AGENT_STARTED(FIELD)                                                                             \
  FIELD(std::int64_t, gang, 0, "")                                                                               \
  FIELD(int, bundle, 0, "")                                                                                      \
  FIELD(int, pid, 0, "")                                                                                         \
  FIELD(bool, forked, false, "from the warm process")

#define TRIREME_AGENT_START_FAILED(FIELD)                                                                        \
  FIELD(std::int64_t, gang, 0, "")                                                                               \
  FIELD(int, bundle, 0, "")                                                                                      \
  FIELD(std::string, why, {}, "")

#define TRIREME_AGENT_EXITED(FIELD)                                                                              \
  FIELD(std::int64_t, gang, 0, "")                                                                               \
  FIELD(int, bundle, 0, "")                                                                                      \
  FIELD(int, pid, 0, "")                                                                                         \
  FIELD(std::string, kind, "unknown", "code, signal or unknown")                                                 \
  FIELD(int, value, 0, "the exit code or the signal's number")                                                   \
  FIELD(std::string, out_of_memory, {}, "evidence that the kernel killed it for lack of memory; empty: none")

#define TRIREME_AGENT_OUTPUT(FIELD)                                                                              \
  FIELD(std::string, path, {}, "log file on the driver's machine")                                               \
  FIELD(Bytes, data, {}, "to be appended to it")

// On connections of their own: from a worker on a node that does not share the driver's file system to the driver, from
// a worker to its agent, and from agents and the driver to an agent. Agents name a file RUN/INDEX/FILE: the id of the
// run's start, the report of the checkpoint, and the path in it.
#define TRIREME_FILE_REQUEST(FIELD)                                                                              \
  FIELD(std::int64_t, id, 0, "request number; the reply carries it")                                             \
  FIELD(int, attempt, 0, "of the worker; requests of earlier attempts are refused")                              \
  FIELD(std::string, call, {}, "to the driver: exists, fetch, write, append, place, list_files, list_folders, make_folder, remove_file or remove_folder; to an agent: take, put, fetch, list_files or drop") \
  FIELD(std::string, path, {}, "on the driver's machine, or in the agent's memory")                              \
  FIELD(std::string, name, {}, "append, place and put: identifies the upload; take: the file to copy into memory") \
  FIELD(std::int64_t, offset, 0, "fetch, append and put: where the bytes are in the file; drop: checkpoints of reports below this number are dropped") \
  FIELD(std::int64_t, size, 0, "fetch: at most this many bytes; place and put: size of the complete file")       \
  FIELD(Bytes, content, {}, "write: of the file; append and put: the bytes at the offset")                       \
  FIELD(std::int64_t, limit, -1, "take and put: bytes that the agent may hold; -1: a quarter of the node's memory")

#define TRIREME_DATA_LOG(FIELD)                                                                                  \
  FIELD(std::string, name, {}, "file in the run's data folder")                                                  \
  FIELD(Bytes, data, {}, "to be appended to it")

#define TRIREME_MESSAGES(MESSAGE)                         \
  MESSAGE(1, Hello, TRIREME_HELLO)                        \
  MESSAGE(2, Welcome, TRIREME_WELCOME)                    \
  MESSAGE(3, Heartbeat, TRIREME_HEARTBEAT)                \
  MESSAGE(4, Start, TRIREME_START)                        \
  MESSAGE(5, Entered, TRIREME_ENTERED)                    \
  MESSAGE(6, Report, TRIREME_REPORT)                      \
  MESSAGE(7, UploadDone, TRIREME_UPLOAD_DONE)             \
  MESSAGE(8, Ack, TRIREME_ACK)                            \
  MESSAGE(9, Done, TRIREME_DONE)                          \
  MESSAGE(10, Failed, TRIREME_FAILED)                     \
  MESSAGE(11, Stop, TRIREME_STOP)                         \
  MESSAGE(12, Goodbye, TRIREME_NO_FIELDS)                 \
  MESSAGE(13, StoreSet, TRIREME_STORE_SET)                \
  MESSAGE(14, StoreGet, TRIREME_STORE_GET)                \
  MESSAGE(15, StoreAdd, TRIREME_STORE_ADD)                \
  MESSAGE(16, StoreWait, TRIREME_STORE_WAIT)              \
  MESSAGE(17, StoreDelete, TRIREME_STORE_DELETE)          \
  MESSAGE(18, StoreCompareSet, TRIREME_STORE_COMPARE_SET) \
  MESSAGE(19, StoreCount, TRIREME_STORE_COUNT)            \
  MESSAGE(20, Barrier, TRIREME_BARRIER)                   \
  MESSAGE(21, Broadcast, TRIREME_BROADCAST)               \
  MESSAGE(22, Reply, TRIREME_REPLY)                       \
  MESSAGE(23, StopRun, TRIREME_STOP_RUN)                  \
  MESSAGE(24, StoreCheck, TRIREME_STORE_CHECK)            \
  MESSAGE(25, Committed, TRIREME_COMMITTED)               \
  MESSAGE(26, ListCheckpoints, TRIREME_LIST_CHECKPOINTS)  \
  MESSAGE(27, Drained, TRIREME_NO_FIELDS)                 \
  MESSAGE(28, Cancel, TRIREME_CANCEL)                     \
  MESSAGE(29, Ready, TRIREME_NO_FIELDS)                    \
  MESSAGE(30, LeaveAt, TRIREME_LEAVE_AT)                  \
  MESSAGE(31, Preemption, TRIREME_PREEMPTION)             \
  MESSAGE(32, PreemptionNotice, TRIREME_PREEMPTION_NOTICE) \
  MESSAGE(33, StackRequest, TRIREME_STACK_REQUEST)        \
  MESSAGE(34, Stack, TRIREME_STACK)                       \
  MESSAGE(35, GetStacks, TRIREME_GET_STACKS)              \
  MESSAGE(36, PreemptRun, TRIREME_PREEMPT_RUN)            \
  MESSAGE(37, SetCapacity, TRIREME_SET_CAPACITY)          \
  MESSAGE(38, WaitRequest, TRIREME_WAIT_REQUEST)          \
  MESSAGE(39, Waits, TRIREME_WAITS)                       \
  MESSAGE(40, Aborted, TRIREME_NO_FIELDS)                 \
  MESSAGE(41, StoreAppend, TRIREME_STORE_APPEND)          \
  MESSAGE(42, StoreMultiGet, TRIREME_STORE_MULTI_GET)     \
  MESSAGE(43, CollectiveTimeout, TRIREME_COLLECTIVE_TIMEOUT) \
  MESSAGE(44, AgentInfo, TRIREME_AGENT_INFO)              \
  MESSAGE(45, AgentWarmUp, TRIREME_AGENT_WARM_UP)         \
  MESSAGE(46, AgentStart, TRIREME_AGENT_START)            \
  MESSAGE(47, AgentKill, TRIREME_AGENT_KILL)              \
  MESSAGE(48, AgentRelease, TRIREME_AGENT_RELEASE)        \
  MESSAGE(49, AgentReleased, TRIREME_AGENT_RELEASED)      \
  MESSAGE(50, AgentStarted, TRIREME_AGENT_STARTED)        \
  MESSAGE(51, AgentStartFailed, TRIREME_AGENT_START_FAILED) \
  MESSAGE(52, AgentExited, TRIREME_AGENT_EXITED)          \
  MESSAGE(53, AgentOutput, TRIREME_AGENT_OUTPUT)          \
  MESSAGE(54, FileRequest, TRIREME_FILE_REQUEST)          \
  MESSAGE(55, DataLog, TRIREME_DATA_LOG)                  \
  MESSAGE(56, AgentPeers, TRIREME_AGENT_PEERS)
// clang-format on

#define TRIREME_MESSAGE_STRUCT(number, Name, TABLE) TRIREME_STRUCT(Name, TABLE)
TRIREME_MESSAGES(TRIREME_MESSAGE_STRUCT)
#undef TRIREME_MESSAGE_STRUCT

#define TRIREME_MESSAGE_TYPE(number, Name, TABLE) , Name
using Message = std::variant<std::monostate TRIREME_MESSAGES(TRIREME_MESSAGE_TYPE)>;
#undef TRIREME_MESSAGE_TYPE

// "report", "store_get", ... for logs and docs.
const char* name_of(const Message& message);

// The payload of a frame: a MessagePack array of the number and the fields.
std::string encode(const Message& message);
base::Result<Message> decode(std::string_view payload);

// The tables above as data, for docs/wire_protocol.md: name -> {number, fields}.
Dict describe_messages();

}  // namespace trireme::wire

namespace trireme::base {
#define TRIREME_MESSAGE_FIELDS(number, Name, TABLE) TRIREME_STRUCT_FIELDS(wire::Name, TABLE)
TRIREME_MESSAGES(TRIREME_MESSAGE_FIELDS)
#undef TRIREME_MESSAGE_FIELDS
}  // namespace trireme::base
