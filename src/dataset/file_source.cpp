#include "file_source.h"

#include <arrow/array/builder_binary.h>
#include <arrow/c/bridge.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <thread>

#include "kernels.h"
#include "status.h"

namespace trireme::dataset {
namespace {

constexpr std::size_t kThreads = 16;
constexpr std::size_t kTogether = 32;  // files that one thread reads in sequence
constexpr const char* kPath = "path";

}  // namespace

// The boundary to C: decoders and Arrow may throw std::bad_alloc, and C cannot propagate exceptions.
::arrow::Status MadeBatches::ReadNext(BatchPointer* out) {
  try {
    return make_().Value(out);
  } catch (const std::exception& thrown) {
    return ::arrow::Status::Invalid(thrown.what());
  }
}

::arrow::Status in_threads(std::size_t count, const std::function<::arrow::Status(std::size_t)>& work) {
  std::vector<::arrow::Status> done(count);
  std::atomic<std::size_t> next = 0;
  const auto run = [&] {
    for (std::size_t at = next++; at < count; at = next++) done[at] = work(at);
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(kThreads, count); ++i) threads.emplace_back(run);
    run();
  }
  for (auto& status : done) ARROW_RETURN_NOT_OK(status);
  return ::arrow::Status::OK();
}

std::vector<FilePart> together(const std::vector<::arrow::fs::FileInfo>& files,
                               const std::function<std::int64_t(const ::arrow::fs::FileInfo&)>& bytes_of) {
  std::vector<FilePart> parts;
  for (const auto& file : files) {
    const std::int64_t bytes = bytes_of(file);
    const bool full =
        !parts.empty() && (parts.back().files.size() >= kTogether || parts.back().bytes + bytes > kFragmentBytes);
    if (parts.empty() || full) parts.push_back({{}, "", 0, 0});
    FilePart& part = parts.back();
    part.files.push_back(file);
    part.rows = *part.rows + 1;
    part.bytes += bytes;
  }
  return parts;
}

std::vector<DataFragment> FileSource::list() {
  load_kernels();
  found_ = find_files(paths_, options_.endings);
  body_ = check(infer_first());
  parts_ = check(plan(options_.skip_bad_files ? good_files() : found_.files));
  std::vector<DataFragment> listed;
  for (const auto& part : parts_) {
    std::string shown = part.files.front().path();
    if (part.files.size() > 1) shown += " and " + std::to_string(part.files.size() - 1) + " more";
    if (!part.what.empty()) shown += ", " + part.what;
    listed.push_back({std::move(shown), part.rows, part.bytes});
  }
  return listed;
}

std::int64_t FileSource::open(std::size_t fragment, std::int64_t row, ArrowArrayStream* stream) {
  const FilePart& part = parts_[fragment];
  auto reader = check(read(part, row));
  if (options_.include_paths && !body_->GetFieldByName(kPath)) reader = with_paths(std::move(reader), part, row);
  check(::arrow::ExportRecordBatchReader(std::move(reader), stream));
  return row;
}

::arrow::Result<SchemaPointer> FileSource::infer_first() {
  ::arrow::Result<SchemaPointer> first = infer(found_.files.front());
  if (first.ok() || !options_.skip_bad_files) return first;
  for (std::size_t i = 1; i < found_.files.size(); ++i) {
    auto other = infer(found_.files[i]);
    if (other.ok()) return other;
  }
  return ::arrow::Status::Invalid("none of the ", found_.files.size(),
                                  " files can be read: ", first.status().message());
}

::arrow::Status FileSource::try_file(const ::arrow::fs::FileInfo& file) {
  ARROW_ASSIGN_OR_RAISE(const auto parts, plan({file}));
  for (const auto& part : parts) {
    ARROW_ASSIGN_OR_RAISE(auto reader, read(part, 0));
    BatchPointer batch;
    do {
      ARROW_RETURN_NOT_OK(reader->ReadNext(&batch));
    } while (batch);
  }
  return ::arrow::Status::OK();
}

// Reads every file once.
std::vector<::arrow::fs::FileInfo> FileSource::good_files() {
  std::vector<::arrow::Status> problems(found_.files.size());
  check(in_threads(problems.size(), [&](std::size_t i) {
    problems[i] = try_file(found_.files[i]);
    // Fails if the store does not answer, as opposed to a bad file.
    return problems[i].IsIOError() ? filesystem()->GetFileInfo(found_.files[i].path()).status() : ::arrow::Status::OK();
  }));
  std::vector<::arrow::fs::FileInfo> good;
  std::vector<std::string> bad;
  std::string why;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    if (problems[i].ok()) {
      good.push_back(found_.files[i]);
      continue;
    }
    if (bad.empty()) why = problems[i].message();
    bad.push_back(found_.files[i].path());
  }
  if (good.empty()) {
    throw std::runtime_error("none of the " + std::to_string(bad.size()) + " files can be read: " + why);
  }
  if (!bad.empty()) {
    std::fprintf(stderr, "trireme: %s: %zu of %zu files cannot be read and are skipped: %s (%s)\n", name().c_str(),
                 bad.size(), problems.size(), short_list(bad).c_str(), why.c_str());
  }
  return good;
}

std::shared_ptr<::arrow::RecordBatchReader> FileSource::with_paths(std::shared_ptr<::arrow::RecordBatchReader> reader,
                                                                   const FilePart& part, std::int64_t row) const {
  const auto schema = body_->AddField(body_->num_fields(), ::arrow::field(kPath, ::arrow::utf8())).ValueOrDie();
  auto make = [reader, schema, files = part.files, row]() mutable -> ::arrow::Result<BatchPointer> {
    ARROW_ASSIGN_OR_RAISE(auto batch, reader->Next());
    if (!batch) return batch;
    ::arrow::StringBuilder paths;
    for (std::int64_t i = 0; i < batch->num_rows(); ++i, ++row) {
      ARROW_RETURN_NOT_OK(paths.Append(files[files.size() == 1 ? 0 : static_cast<std::size_t>(row)].path()));
    }
    auto columns = batch->columns();
    ARROW_ASSIGN_OR_RAISE(columns.emplace_back(), paths.Finish());
    return ::arrow::RecordBatch::Make(schema, batch->num_rows(), std::move(columns));
  };
  return std::make_shared<MadeBatches>(schema, std::move(make));
}

}  // namespace trireme::dataset
