#pragma once

#include <memory>
#include <string>

#include "plan/stream_op.h"
#include "trireme/expression.h"

namespace trireme::dataset {

std::shared_ptr<const plan::StreamOp> filter_op(const data::Expression& keeps);
std::shared_ptr<const plan::StreamOp> with_column_op(const std::string& column, const data::Expression& value);
std::shared_ptr<const plan::StreamOp> conform_op(ArrowSchema* schema);

}  // namespace trireme::dataset
