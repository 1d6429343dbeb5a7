#include "chunkstore/layer_pack/source_plan.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/file_io.h"
#include "base/hash.h"
#include "chunkstore/build/temp_directory.h"
#include "chunkstore/source/archive_path.h"
#include "chunkstore/source/directory_source.h"
#include "chunkstore/source/image_files.h"
#include "chunkstore/source/oci_image.h"
#include "chunkstore/source/tar_reader.h"
#include "chunkstore/source/tar_source.h"

namespace varve::layer_pack {
namespace {

using chunkstore::EntrySource;
using chunkstore::ImageFiles;
using chunkstore::ImageLayoutKind;

SourcePlan plan_of(std::string name, std::function<Result<std::unique_ptr<EntrySource>>()> open) {
  SourcePlan plan;
  plan.layers.push_back({std::move(name), std::move(open)});
  return plan;
}

std::string temp_directory(const BuildOptions& options) {
  return chunkstore::temp_directory_or_default(options.pack.temp_directory);
}

SourcePlan plan_directory(const BuildOptions& options) {
  return plan_of(options.source, [path = options.source, temp = temp_directory(options)] {
    return chunkstore::open_directory_source(path, {.temp_directory = temp});
  });
}

SourcePlan plan_tar(const std::string& path) {
  return plan_of(path,
                 [path] { return chunkstore::open_tar_source(path, chunkstore::TarMode::kPlain); });
}

Result<SourcePlan> plan_image(const ImageFiles& files, ImageLayoutKind kind,
                              const BuildOptions& options) {
  chunkstore::OciOptions oci;
  if (!options.platform.empty()) oci.platform = options.platform;
  oci.reference = options.reference;
  VARVE_ASSIGN(chunkstore::OciImage image, kind == ImageLayoutKind::kOciLayout
                                               ? chunkstore::open_oci_layout(files, oci)
                                               : chunkstore::open_docker_archive(files, oci));
  SourcePlan plan;
  plan.config = std::move(image.config);
  for (chunkstore::OciImage::Layer& layer : image.layers) {
    std::string name = layer.name;
    plan.layers.push_back({std::move(name), [layer = std::move(layer)] {
                             return chunkstore::OciImage::open_layer(layer);
                           }});
  }
  return plan;
}

Result<SourcePlan> plan_archive(const BuildOptions& options, ImageLayoutKind expected) {
  VARVE_ASSIGN(const auto files,
               chunkstore::open_image_archive(options.source, temp_directory(options)));
  VARVE_ASSIGN(const ImageLayoutKind found, chunkstore::detect_image_layout(*files));
  if (found == ImageLayoutKind::kNone && expected == ImageLayoutKind::kNone) {
    return plan_tar(options.source);
  }
  return plan_image(*files, expected == ImageLayoutKind::kNone ? found : expected, options);
}

Result<SourcePlan> plan_layout_directory(const BuildOptions& options) {
  VARVE_ASSIGN(const auto files, chunkstore::open_image_directory(options.source));
  return plan_image(*files, ImageLayoutKind::kOciLayout, options);
}

/// Names that `docker save` and tools that write OCI archives put first.
bool begins_image_archive(std::string_view path) {
  const std::string_view first = path.substr(0, path.find('/'));
  for (const std::string_view name :
       {"blobs", "oci-layout", "index.json", "manifest.json", "repositories"}) {
    if (first == name) return true;
  }
  const std::string_view stem = first.substr(0, first.find('.'));
  return Digest::from_hex(stem).has_value();
}

/// Reads the tar up to its first member that is not the root (`tar -C layout -c .` begins with it).
/// What is wrong with it is for the tar source to report.
Result<bool> may_be_image_archive(const std::string& path) {
  VARVE_ASSIGN(UniqueFd fd, open_file(path, O_RDONLY));
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) return fail_errno("inspecting " + quoted(path));
  if (!S_ISREG(status.st_mode)) return false;  // a pipe can be read once only
  const auto plain = chunkstore::decompress(chunkstore::open_descriptor(std::move(fd)));
  if (!plain) return false;
  chunkstore::tar::Reader reader(**plain);
  chunkstore::tar::Member member;
  for (;;) {
    const auto has_member = reader.next(member);
    if (!has_member || !*has_member) return false;
    const auto name = chunkstore::normalise_archive_path(member.path);
    if (!name) return false;
    if (!name->empty()) return begins_image_archive(*name);
  }
}

Result<SourcePlan> plan_auto(const BuildOptions& options) {
  if (options.source == "-") return plan_tar(options.source);
  struct stat status;
  if (::stat(options.source.c_str(), &status) != 0) {
    return fail_errno("opening " + quoted(options.source));
  }
  if (S_ISDIR(status.st_mode)) {
    VARVE_ASSIGN(const auto files, chunkstore::open_image_directory(options.source));
    const auto kind = chunkstore::detect_image_layout(*files);
    const bool is_layout = kind && *kind == ImageLayoutKind::kOciLayout;
    return is_layout ? plan_layout_directory(options) : plan_directory(options);
  }
  VARVE_ASSIGN(const bool is_candidate, may_be_image_archive(options.source));
  return is_candidate ? plan_archive(options, ImageLayoutKind::kNone) : plan_tar(options.source);
}

}  // namespace

Result<SourcePlan> plan_source(const BuildOptions& options) {
  switch (options.source_type) {
    case SourceType::kAuto:
      return plan_auto(options);
    case SourceType::kDirectory:
      return plan_directory(options);
    case SourceType::kTar:
      return plan_tar(options.source);
    case SourceType::kDockerArchive:
      return plan_archive(options, ImageLayoutKind::kDockerArchive);
    case SourceType::kOciLayout: {
      struct stat status;
      const bool is_directory =
          ::stat(options.source.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
      return is_directory ? plan_layout_directory(options)
                          : plan_archive(options, ImageLayoutKind::kOciLayout);
    }
  }
  return fail(ErrorCode::kInternal, "unknown source type");
}

}  // namespace varve::layer_pack
