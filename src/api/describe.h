#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/value.h"

// Text for people about a run: the same in the terminals of Python and C++ programs and in `trireme show`.

namespace trireme::api {

// One line for an event of the event log, or for a line of worker output ("event": "output"); nullopt for events that
// only matter to programs.
std::optional<std::string> describe(const Dict& event);

// The first line of a text, shortened to fit a terminal.
std::string headline(const std::string& text);

// Cut to `size` bytes at a character boundary, followed by "..."; unchanged if it fits.
std::string shortened(std::string text, std::size_t size);

// "0.0312", "3", "yes": the value of a metric in a table.
std::string value_text(const Value& value);

// {"a": {"b": 1}} -> {"a/b", "1"}, in the order of the metrics.
std::vector<std::pair<std::string, std::string>> metric_rows(const Dict& metrics);

// "loss 0.1, epoch 3, ...": the first few, for one line.
std::string metrics_text(const Dict& metrics);

// Like metric_rows(), cut to one screen; the last row then shows how many more metrics there are, and `where`.
std::vector<std::pair<std::string, std::string>> first_metric_rows(const Dict& metrics, std::string_view where);

// Two columns, the second one aligned; each line ends with a newline.
std::string two_columns(const std::vector<std::pair<std::string, std::string>>& rows);

// The end of a run: outcome, time, last metrics, checkpoint, folder.
std::string result_table(const Dict& outcome);

}  // namespace trireme::api
