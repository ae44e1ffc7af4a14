#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "data/arrow_owned.h"
#include "data/batch.h"

// The Arrow C interfaces from the producer's side: our own arrays, schemas and streams.

namespace trireme::data {

struct Array;

// Arguments for `children`, which cannot be copied from an initializer list.
template <typename First, typename... Others>
std::vector<First> in_vector(First first, Others... others) {
  std::vector<First> made;
  made.push_back(std::move(first));
  (made.push_back(std::move(others)), ...);
  return made;
}

// Encoded for make_schema().
std::string metadata_of(const std::vector<std::pair<std::string, std::string>>& pairs);
OwnedSchema make_schema(std::string format, std::string name, std::vector<OwnedSchema> children = {},
                        std::string metadata = {});
// The same under another name; the original is unchanged.
OwnedSchema renamed(OwnedSchema schema, std::string name);
// A tensor column: Arrow's extension type fixed_shape_tensor over lists of a fixed size.
OwnedSchema as_tensors(OwnedSchema lists, const std::vector<std::int64_t>& shape);
// Indices into `values`.
OwnedSchema with_dictionary(OwnedSchema indices, OwnedSchema values);
OwnedArray with_dictionary(OwnedArray indices, OwnedArray values);

// `owners` keep the buffers' memory alive.
OwnedArray make_array(std::int64_t length, std::int64_t null_count, std::vector<const void*> buffers,
                      std::vector<std::shared_ptr<const void>> owners, std::vector<OwnedArray> children = {});

// Every array shares `owner`, the owner of its memory: a reader may keep a child and release the rest.
OwnedArray export_array(const Type& type, const Array& array, const std::shared_ptr<const void>& owner);

// A column, whose schema has its name.
struct RecordColumn {
  OwnedSchema schema;
  OwnedArray array;
};
Record record_of(std::vector<RecordColumn> columns, std::int64_t rows);
// The columns, moved out.
std::vector<RecordColumn> split(Record record);

// A copy that owns its memory.
base::Result<Batch> batch_of(Record record);

// The implementation of our C streams.
class ArrayProducer {
 public:
  virtual ~ArrayProducer() = default;
  virtual base::Result<OwnedSchema> schema() = 0;
  // A released array at the end.
  virtual base::Result<OwnedArray> next() = 0;
  // Whether the returned error may be temporary: the reader retries.
  virtual bool may_pass() const { return false; }
};

OwnedStream make_stream(std::unique_ptr<ArrayProducer> producer);

// Concatenates the batches; at least one.
OwnedStream stream_of(std::vector<Batch> batches);

}  // namespace trireme::data
