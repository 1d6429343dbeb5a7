#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "chunkstore/format/image.h"
#include "chunkstore/source/entry.h"
#include "chunkstore/source/image_files.h"

namespace varve::chunkstore {

struct OciOptions {
  /// `os/architecture[/variant]`: which member of a multi-platform index is taken. An image is for
  /// what its descriptor in the index says, or else its configuration; one that says nothing fits.
  std::string platform = "linux/amd64";
  /// Name or tag of the image where the layout holds several; "" = there must be just one.
  std::string reference;
};

/// An OCI or Docker image, opened: what is left is to read its layers. Its files stay open.
class OciImage {
 public:
  /// One layer. Value type.
  struct Layer {
    std::string name;  ///< Digest or path, for messages.
    FileRange file;
    /// Expected SHA-256 (`sha256:…` resolved to its hex digits) of the stored bytes, or, where only
    /// that is known, of the uncompressed tar; "" = unknown.
    std::string stored_sha256;
    std::string tar_sha256;
  };

  ImageConfig config;
  std::vector<Layer> layers;  ///< Lowest first, at least one.

  /// The entries of `layer`, whiteouts and opaque marks included. read_into() checks the digest
  /// when everything has been read: kCorruption when it differs (nothing of it may be published
  /// then).
  static Result<std::unique_ptr<EntrySource>> open_layer(const Layer& layer);
};

/// What a source path holds, as far as it is an image.
enum class ImageLayoutKind {
  kNone,
  kOciLayout,      ///< `oci-layout` and `index.json` (OCI image-spec, image-layout.md).
  kDockerArchive,  ///< `manifest.json`, as `docker save` writes it.
};
Result<ImageLayoutKind> detect_image_layout(const ImageFiles& files);

/// Opens the image in an OCI layout: index.json → (index of platforms →) manifest → config; entries
/// that are no images (attestations) are passed over. Every JSON is checked against its digest and
/// size, and against a size cap, before it is parsed; names in it never lead outside the layout.
/// Errors: kInvalidArgument (malformed, ambiguous), kNotFound (no such platform, reference or
/// blob), kCorruption (a digest does not match), kUnsupported (media types unknown here).
/// Source: OCI image-spec v1.1.
Result<OciImage> open_oci_layout(const ImageFiles& files, const OciOptions& options);

/// Opens the image in what `docker save` wrote (manifest.json). Errors as above.
Result<OciImage> open_docker_archive(const ImageFiles& files, const OciOptions& options);

}  // namespace varve::chunkstore
