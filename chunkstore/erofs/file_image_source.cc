#include "chunkstore/erofs/file_image_source.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/file_io.h"

namespace varve::chunkstore::erofs {

Result<std::unique_ptr<FileImageSource>> FileImageSource::open(const std::string& path) {
  VARVE_ASSIGN(UniqueFd fd, open_file(path, O_RDONLY));
  struct stat status;
  if (fstat(fd.get(), &status) != 0) return fail_errno("examining " + quoted(path));
  return std::unique_ptr<FileImageSource>(
      new FileImageSource(std::move(fd), static_cast<uint64_t>(status.st_size)));
}

Status FileImageSource::read(uint64_t offset, MutableByteView to) {
  return pread_exact(fd_.get(), offset, to);
}

}  // namespace varve::chunkstore::erofs
