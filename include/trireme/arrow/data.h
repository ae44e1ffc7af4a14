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

// Datasets from files, through the Arrow library that the program links (trireme::data). Paths are files, folders
// (recursive, without names that start with '.' or '_') and patterns ("train/*.parquet"), local or in an object store
// ("s3://bucket/train"). Folders named "year=2024" add a column. Compression is detected by extension (.gz, .zst).
// Files are listed when rows or their number are first requested, and read in the order of their names.

namespace trireme::data {

struct TRIREME_API Paths {
  Paths(const char* path) : paths{path} {}
  Paths(std::string path) : paths{std::move(path)} {}
  Paths(std::vector<std::string> given) : paths(std::move(given)) {}
  Paths(std::initializer_list<std::string> given) : paths(given) {}

  std::vector<std::string> paths;
};

struct ReadFilesOptions {
  std::vector<std::string> columns = {};  // only these are read; default: all
  bool skip_bad_files = false;            // skip files that cannot be read, with a warning
  // Whether all files must have the columns of the first one, in the same types. Otherwise columns are matched by name:
  // a missing column is null, and types are unified if nothing is lost (int32 and int64, string and large_string).
  bool strict = false;
};

// A fragment is a row group.
TRIREME_API Dataset read_parquet(const Paths& paths, const ReadFilesOptions& options = {});
// With a header line. The first file determines the types.
TRIREME_API Dataset read_csv(const Paths& paths, const ReadFilesOptions& options = {});
// One object per line.
TRIREME_API Dataset read_json(const Paths& paths, const ReadFilesOptions& options = {});
// One row per line, in a column "text". Empty lines are skipped.
TRIREME_API Dataset read_text(const Paths& paths);
// One row per file, in the columns "bytes" and "path".
TRIREME_API Dataset read_binary_files(const Paths& paths);

// Default limit of pixels per image: a file of a few kilobytes can declare an image that fills the memory.
inline constexpr std::int64_t kMaxPixels = 178'956'970;

struct ReadImagesOptions {
  struct Size {
    std::int64_t height = 0;
    std::int64_t width = 0;
  };
  std::optional<Size> size = {};         // resize all images; default: keep their sizes
  std::string mode = {};                 // "RGB", "RGBA", "L" (grey), "LA"; default: keep
  std::int64_t max_pixels = kMaxPixels;  // of one file, before resizing; larger images are refused
  bool include_paths = false;            // add a column "path"
  bool skip_bad_files = false;
};
// One row per file (png, jpg, jpeg, bmp, gif), in a column "image": [height, width, channels], or [height, width] if
// there is one channel. A fragment is several files. If shapes differ, a batch has no tensor of them, but its rows do.
TRIREME_API Dataset read_images(const Paths& paths, const ReadImagesOptions& options = {});

struct ReadNumpyOptions {
  bool include_paths = false;
  bool skip_bad_files = false;
};
// .npy files of numbers or booleans: one row per index of the first dimension, in a column "data".
TRIREME_API Dataset read_numpy(const Paths& paths, const ReadNumpyOptions& options = {});

struct ReadTfrecordsOptions {
  // "int64", "float", "binary", "string", "large_binary" or "list<...>" of one of them, by the name of the feature.
  std::map<std::string, std::string> schema = {};
  bool include_paths = false;
  bool skip_bad_files = false;
};
// One column per feature of the tf.train.Example records. A feature with one value in all of the first records becomes
// a number (or bytes), any other a list; `schema` overrides this. Checksums are verified. A fragment is a file.
TRIREME_API Dataset read_tfrecords(const Paths& paths, const ReadTfrecordsOptions& options = {});

struct ReadWebdatasetOptions {
  bool decode = true;                      // txt, json, cls, npy and images by suffix; if false, all are bytes
  std::int64_t max_pixels = kMaxPixels;    // of an image; larger images are refused
  std::vector<std::string> suffixes = {};  // only these are read; default: all
  bool include_paths = false;
  bool skip_bad_files = false;
};
// Tar files (tar, tgz): one row per sample, with its name in "__key__" and one column per suffix. A fragment is a file.
TRIREME_API Dataset read_webdataset(const Paths& paths, const ReadWebdatasetOptions& options = {});

// Runs a query and returns its rows as a stream that the caller releases. Throws on failure. Wrap ADBC or DuckDB in
// such a function, or use sqlite().
using SqlConnection = std::function<void(const std::string& query, ArrowArrayStream* rows)>;
// The result of a query. The query runs once, when the dataset is first used, and its result stays in memory. Every
// worker of a trainer also runs it: if the database guarantees no order, add an ORDER BY.
TRIREME_API Dataset read_sql(const std::string& query, SqlConnection connection);
// Connects to a SQLite file. Parameters replace the query's question marks.
TRIREME_API SqlConnection sqlite(const std::string& file, const List& parameters = {});

struct WriteFilesOptions {
  // Rows per file; the last file has the rest. Default: files are split by size.
  std::optional<std::int64_t> min_rows_per_file = {};
  // If the folder already has files: "append", "overwrite", "ignore" (write nothing) or "error".
  std::string mode = "append";
};

// Write files to a folder, local or in an object store, and create it if needed. File names sort in the dataset's
// order.
TRIREME_API void write_parquet(const Dataset& dataset, const std::string& folder,
                               const WriteFilesOptions& options = {});
TRIREME_API void write_csv(const Dataset& dataset, const std::string& folder, const WriteFilesOptions& options = {});
// One object per line.
TRIREME_API void write_json(const Dataset& dataset, const std::string& folder, const WriteFilesOptions& options = {});
// One column as .npy files: numbers, or lists and tensors of one shape. Nulls among numbers become NaN.
TRIREME_API void write_numpy(const Dataset& dataset, const std::string& folder, const std::string& column,
                             const WriteFilesOptions& options = {});

// Sorts in memory, when rows are first requested. The sort is stable.
TRIREME_API Dataset sort_by(const Dataset& dataset, const std::vector<std::string>& columns, bool descending = false);

struct Aggregate {
  std::string column;  // empty: count rows, only for "count"
  // "count", "sum", "min", "max", "mean", "std" (of a sample), or another Arrow hash aggregate.
  std::string function;
  std::string name = {};  // of the new column; default: "sum(x)"
};
// Counts all rows of a group; Aggregate{"x", "count"} excludes rows without an x.
inline Aggregate count_rows(std::string name = "count()") { return {"", "count", std::move(name)}; }
// One row per combination of values of the key columns, sorted by them. Nulls are a group, too, and sort last. Without
// keys there is one row for the complete dataset.
TRIREME_API Dataset group_by(const Dataset& dataset, const std::vector<std::string>& keys,
                             const std::vector<Aggregate>& aggregates);

struct JoinOptions {
  std::vector<std::string> right_on = {};  // names of the keys in the right dataset, if different
  // For columns that are in both datasets.
  std::string left_suffix = {};
  std::string right_suffix = {};
};
// Joins rows with equal keys, in the order of the left dataset: the keys, then the other columns of the left and of the
// right dataset. `how`: inner, left, right, full, semi (rows of the left with a match), anti (rows of the left without
// a match), or left_outer, right_outer, full_outer, outer, left_semi, right_semi, left_anti, right_anti. Nulls never
// match.
TRIREME_API Dataset join(const Dataset& left, const Dataset& right, const std::vector<std::string>& keys,
                         const std::string& how = "inner", const JoinOptions& options = {});

}  // namespace trireme::data
