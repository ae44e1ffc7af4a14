#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
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

// What an image may have, unless more is asked for: a file of a few kilobytes can claim to be one that fills the
// memory.
inline constexpr std::int64_t kMaxPixels = 178'956'970;

struct ReadImagesOptions {
  struct Size {
    std::int64_t height = 0;
    std::int64_t width = 0;
  };
  std::optional<Size> size = {};         // that all are brought to; without it they may differ
  std::string mode = {};                 // "RGB", "RGBA", "L" (grey), "LA"; as they are when not given
  std::int64_t max_pixels = kMaxPixels;  // of one file, before it is resized; larger ones are refused
  bool include_paths = false;            // in a column "path"
  bool skip_bad_files = false;
};
// A row a file (png, jpg, jpeg, bmp, gif), in a column "image": [height, width, channels], or [height, width] where
// there is one channel. Some files are a fragment. Where shapes differ, a batch has no tensor of them; its rows have.
TRIREME_API Dataset read_images(const Paths& paths, const ReadImagesOptions& options = {});

struct ReadNumpyOptions {
  bool include_paths = false;
  bool skip_bad_files = false;
};
// .npy files of numbers or booleans: a row for each index of the first dimension, in a column "data".
TRIREME_API Dataset read_numpy(const Paths& paths, const ReadNumpyOptions& options = {});

struct ReadTfrecordsOptions {
  // "int64", "float", "binary", "string", "large_binary" or "list<...>" of one of them, by the name of the feature.
  std::map<std::string, std::string> schema = {};
  bool include_paths = false;
  bool skip_bad_files = false;
};
// A column for each feature of the tf.train.Example records, by name. A feature that has one value in all of the first
// records is a number (or bytes), any other a list; `schema` sets it. Checksums are checked. A file is a fragment.
TRIREME_API Dataset read_tfrecords(const Paths& paths, const ReadTfrecordsOptions& options = {});

struct ReadWebdatasetOptions {
  bool decode = true;                      // txt, json, cls, npy and images by their suffixes; else all are bytes
  std::int64_t max_pixels = kMaxPixels;    // of an image; larger ones are refused
  std::vector<std::string> suffixes = {};  // only these are read; all when none are named
  bool include_paths = false;
  bool skip_bad_files = false;
};
// Tar files (tar, tgz): a row for each sample, with its name in "__key__" and a column for each suffix. A file is a
// fragment.
TRIREME_API Dataset read_webdataset(const Paths& paths, const ReadWebdatasetOptions& options = {});

// Runs a query and gives its rows, to be released by whoever gets the stream; throws where it cannot. A function around
// ADBC or DuckDB is one; sqlite() makes one.
using SqlConnection = std::function<void(const std::string& query, ArrowArrayStream* rows)>;
// What a query returns. It is run once, when the dataset is first used, and its result kept in memory. Every worker of
// a trainer runs it too: where a database promises no order, the query needs an ORDER BY.
TRIREME_API Dataset read_sql(const std::string& query, SqlConnection connection);
// A file of SQLite's. Parameters stand for the query's question marks.
TRIREME_API SqlConnection sqlite(const std::string& file, const List& parameters = {});

struct WriteFilesOptions {
  // A file has as many, the last one what is left; when not given, it is closed by its size.
  std::optional<std::int64_t> min_rows_per_file = {};
  // What if there are files in the folder: "append", "overwrite", "ignore" (writes nothing) or "error".
  std::string mode = "append";
};

// Into files of a folder, which is made, here or in a store elsewhere; in the dataset's order, which is that of their
// names.
TRIREME_API void write_parquet(const Dataset& dataset, const std::string& folder,
                               const WriteFilesOptions& options = {});
TRIREME_API void write_csv(const Dataset& dataset, const std::string& folder, const WriteFilesOptions& options = {});
// One object a line.
TRIREME_API void write_json(const Dataset& dataset, const std::string& folder, const WriteFilesOptions& options = {});
// One column as .npy files: numbers, or lists and tensors of one shape. Nulls among numbers are NaN.
TRIREME_API void write_numpy(const Dataset& dataset, const std::string& folder, const std::string& column,
                             const WriteFilesOptions& options = {});

// In memory, when it is asked for first. Rows that are equal stay in their order.
TRIREME_API Dataset sort_by(const Dataset& dataset, const std::vector<std::string>& columns, bool descending = false);

struct Aggregate {
  std::string column;  // empty: rows are counted, which is for "count" only
  // "count", "sum", "min", "max", "mean", "std" (of a sample), or another hash aggregate of Arrow.
  std::string function;
  std::string name = {};  // of the new column; "sum(x)" when not given
};
// The rows of a group, whatever is in them; Aggregate{"x", "count"} leaves out those without an x.
inline Aggregate count_rows(std::string name = "count()") { return {"", "count", std::move(name)}; }
// One row for each combination of values of the key columns, sorted by them; nulls are a group too, the last one.
// Without keys, one row for all.
TRIREME_API Dataset group_by(const Dataset& dataset, const std::vector<std::string>& keys,
                             const std::vector<Aggregate>& aggregates);

struct JoinOptions {
  std::vector<std::string> right_on = {};  // the keys' names in the right one, where they differ
  // For columns that both have.
  std::string left_suffix = {};
  std::string right_suffix = {};
};
// Rows of both with the same key, in the order of the left one: the keys, then the other columns of the left and of the
// right. `how`: inner, left, right, full, semi (rows of the left that have a match), anti (those that have none), or
// left_outer, right_outer, full_outer, outer, left_semi, right_semi, left_anti, right_anti. Nulls match nothing.
TRIREME_API Dataset join(const Dataset& left, const Dataset& right, const std::vector<std::string>& keys,
                         const std::string& how = "inner", const JoinOptions& options = {});

}  // namespace trireme::data
