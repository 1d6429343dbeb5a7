#include "fs/layer/metadata_file.h"

#include "base/file_io.h"

namespace varve::fs {

Status MetadataFile::read(uint64_t offset, MutableByteView to) {
  if (offset > metadata_bytes_ || to.size() > metadata_bytes_ - offset) {
    return fail(ErrorCode::kCorruption, "metadata at image offset " + std::to_string(offset) +
                                            " lies outside the metadata region of " +
                                            std::to_string(metadata_bytes_) + " bytes");
  }
  return pread_exact(fd_.get(), offset, to);
}

}  // namespace varve::fs
