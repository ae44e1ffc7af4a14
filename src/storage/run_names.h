#pragma once

#include <array>
#include <string_view>

// The names that a run uses in its folder, which checkpoints must not have. A test compares the list with the folder of
// a run. Names that start with a dot are not listed, because the names of checkpoints cannot start with a dot.

namespace trireme::storage {

inline constexpr const char* kRunFile = "run.json";
inline constexpr const char* kEventsFile = "events.jsonl";
inline constexpr const char* kMetricsTable = "metrics.csv";
inline constexpr const char* kMetricsLines = "metrics.jsonl";
inline constexpr const char* kReturnValueFile = "return_value.pkl";
inline constexpr const char* kLogsFolder = "logs";
inline constexpr const char* kStacksFolder = "stacks";
// torch writes the flight recorder's dump of each rank to this name plus the rank (trireme/_flight_recorder.py).
inline constexpr const char* kFlightRecord = "stacks/flight_recorder_rank_";
inline constexpr const char* kDataFolder = "data";  // digests of the rows that ranks read
// Written by Python.
inline constexpr const char* kTrainerFile = "trainer.pkl";
inline constexpr const char* kTensorBoardFolder = "tensorboard";

inline constexpr std::array<std::string_view, 10> kRunNames = {
    kRunFile,    kEventsFile,   kMetricsTable, kMetricsLines, kReturnValueFile,
    kLogsFolder, kStacksFolder, kDataFolder,   kTrainerFile,  kTensorBoardFolder,
};

}  // namespace trireme::storage
