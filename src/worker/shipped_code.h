#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "trireme/filesystem.h"

namespace trireme::worker {

// `code`: folders (or files) with code on the driver's machine -> their digests (storage/code_tree.h). Returns where
// each of them is on this machine: at the same path if it has the same content there, otherwise in a copy that is
// fetched once per node.
base::Result<std::map<std::string, std::string>> fetch_code(FileSystem& driver,
                                                            const std::map<std::string, std::string>& code);

}  // namespace trireme::worker
