#pragma once

#include <cstdint>

#include "base/error.h"
#include "chunkstore/layer_pack/image_view.h"
#include "chunkstore/layer_pack/output_file.h"
#include "chunkstore/layer_pack/progress.h"

namespace varve::layer_pack {

struct TarExportCounts {
  uint64_t entries = 0;
  uint64_t skipped_sockets = 0;  ///< A tar cannot hold them.
};

/// Writes the merged tree of `view` as a tar (tar_writer.h): names begin with "./", a directory
/// comes before what it holds, entries of a directory in bytewise order, the first name of a file
/// is the real one and the others are hard links to it.
Result<TarExportCounts> export_tar(const ImageView& view, OutputFile& to, Progress& progress);

}  // namespace varve::layer_pack
