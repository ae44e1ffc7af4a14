#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/value.h"

// How a run is told to a person, the same words in the terminal of Python and C++ programs and in `trireme show`.

namespace trireme::api {

// The one line for an event of the event log, or for a line of worker output ("event": "output"); nullopt for the many
// that only matter to programs.
std::optional<std::string> describe(const Dict& event);

// The first line of a longer text, cut to what fits a terminal.
std::string headline(const std::string& text);

// Cut to `size` bytes, between characters, with "..." behind it; as it is where it fits.
std::string shortened(std::string text, std::size_t size);

// "0.0312", "3", "yes": a metric's value as a table shows it.
std::string value_text(const Value& value);

// {"a": {"b": 1}} -> {"a/b", "1"}, in the order of the metrics.
std::vector<std::pair<std::string, std::string>> metric_rows(const Dict& metrics);

// "loss 0.1, epoch 3, ...": the first few, for one line.
std::string metrics_text(const Dict& metrics);

// As metric_rows(), cut to what a screen holds; the last row then says how many more there are, and `where`.
std::vector<std::pair<std::string, std::string>> first_metric_rows(const Dict& metrics, std::string_view where);

// Two columns under each other, the second one aligned; each line ends with a newline.
std::string two_columns(const std::vector<std::pair<std::string, std::string>>& rows);

// The end of a run: outcome, time, last metrics, checkpoint, folder.
std::string result_table(const Dict& outcome);

}  // namespace trireme::api
