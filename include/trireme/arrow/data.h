#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "trireme/data.h"
#include "trireme/export.h"

// Datasets from files, through the Arrow that the program links (trireme::arrow). Paths are files, folders (with all
// that is below, without what begins with '.' or '_') and patterns ("train/*.parquet"), here or in a store elsewhere
// ("s3://bucket/train"). Folders named "year=2024" add a column. Compressed files are read by their ending (.gz, .zst).
// Files are looked for when rows or their number are asked for, and their order is that of their names.

namespace trireme::data {

struct TRIREME_API Paths {
  Paths(const char* path) : paths{path} {}
  Paths(std::string path) : paths{std::move(path)} {}
  Paths(std::vector<std::string> given) : paths(std::move(given)) {}
  Paths(std::initializer_list<std::string> given) : paths(given) {}

  std::vector<std::string> paths;
};

struct ReadFilesOptions {
  std::vector<std::string> columns = {};  // all when none are named; others are not read
  bool skip_bad_files = false;            // those that cannot be read are left out, with a line that says so
};

// A row group is a fragment.
TRIREME_API Dataset read_parquet(const Paths& paths, const ReadFilesOptions& options = {});
// With a header line; types are those of the first file.
TRIREME_API Dataset read_csv(const Paths& paths, const ReadFilesOptions& options = {});
// One object a line.
TRIREME_API Dataset read_json(const Paths& paths, const ReadFilesOptions& options = {});
// A row a line, in a column "text"; without empty lines.
TRIREME_API Dataset read_text(const Paths& paths);
// A row a file, in columns "bytes" and "path".
TRIREME_API Dataset read_binary_files(const Paths& paths);

// Into files "part-000000.parquet", ... in a folder, which is made; a file has 1 million rows. Files that are there
// stay, unless they have the same name. Read in the dataset's order.
TRIREME_API void write_parquet(const Dataset& dataset, const std::string& folder);
TRIREME_API void write_csv(const Dataset& dataset, const std::string& folder);

// In memory, when it is asked for first. Rows that are equal stay in their order.
TRIREME_API Dataset sort_by(const Dataset& dataset, const std::vector<std::string>& columns, bool descending = false);

struct Aggregate {
  std::string column;
  std::string function;   // "count", "sum", "min", "max", "mean", "stddev", ...: a hash aggregate of Arrow
  std::string name = {};  // of the new column; "sum(x)" when not given
};
// One row for each combination of values of the key columns; without keys, one row for all.
TRIREME_API Dataset group_by(const Dataset& dataset, const std::vector<std::string>& keys,
                             const std::vector<Aggregate>& aggregates);
// Rows of both that agree in the key columns; with "left" in place of "inner" also those of the left one that are
// alone, with nulls. The keys come once; other columns must have different names. The order of rows is not defined.
TRIREME_API Dataset join(const Dataset& left, const Dataset& right, const std::vector<std::string>& keys,
                         const std::string& how = "inner");

}  // namespace trireme::data
