#pragma once

#include <array>
#include <string_view>

// What a run keeps in its folder beside its checkpoints: no checkpoint may have one of these names. A test compares the
// list with the folder of a run. Names that begin with a dot need no place in it, because no checkpoint may begin so.

namespace trireme::storage {

inline constexpr const char* kRunFile = "run.json";
inline constexpr const char* kEventsFile = "events.jsonl";
inline constexpr const char* kMetricsTable = "metrics.csv";
inline constexpr const char* kMetricsLines = "metrics.jsonl";
inline constexpr const char* kReturnValueFile = "return_value.pkl";
inline constexpr const char* kLogsFolder = "logs";
inline constexpr const char* kStacksFolder = "stacks";
inline constexpr const char* kDataFolder = "data";  // digests of the rows that ranks have taken
// Written by Python.
inline constexpr const char* kTrainerFile = "trainer.pkl";
inline constexpr const char* kTensorBoardFolder = "tensorboard";

inline constexpr std::array<std::string_view, 10> kRunNames = {
    kRunFile,    kEventsFile,   kMetricsTable, kMetricsLines, kReturnValueFile,
    kLogsFolder, kStacksFolder, kDataFolder,   kTrainerFile,  kTensorBoardFolder,
};

}  // namespace trireme::storage
