#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"

/// The image object `images/<id>`: canonical JSON whose SHA-256 is the image's id. Defined by
/// varve-store(5), section IMAGES.
namespace varve::chunkstore {

inline constexpr size_t kImageJsonBytesMax = 4 << 20;
/// What OverlayFS stacks at most.
inline constexpr size_t kImageLayerCountMax = 500;
inline constexpr size_t kImageIdCountMax = 65536;
/// Environment entries, arguments, labels, annotations: each list or map.
inline constexpr size_t kImageListCountMax = 65536;
/// Ids below are mapped as one range into every sandbox.
inline constexpr uint32_t kLargeIdMin = 65536;

/// How a command is run in the image: the members of an OCI image config that Varve carries, with
/// their OCI meaning. Empty members are absent in the JSON. All strings are UTF-8 without NUL.
struct ImageConfig {
  std::vector<std::string> env;               ///< "Env": KEY=VALUE, in order.
  std::string cwd;                            ///< "WorkingDir".
  std::string user;                           ///< "User": user[:group], names or numbers.
  std::vector<std::string> entrypoint;        ///< "Entrypoint".
  std::vector<std::string> cmd;               ///< "Cmd".
  std::string stop_signal;                    ///< "StopSignal".
  std::map<std::string, std::string> labels;  ///< "Labels".

  bool operator==(const ImageConfig&) const = default;
};

struct Image {
  std::vector<Digest> layers;  ///< Lowest first, 1 … kImageLayerCountMax.
  ImageConfig config;
  /// Every user and group id ≥ kLargeIdMin that occurs in a layer: sorted, each once.
  std::vector<uint32_t> ids;
  /// Reserved for later; carried, never interpreted.
  std::map<std::string, std::string> annotations;

  bool operator==(const Image&) const = default;
};

/// The canonical bytes. Errors: kInvalidArgument (a bound is passed, text is not UTF-8, ids are not
/// sorted, an environment entry has no '=').
Result<Bytes> encode_image(const Image& image);
/// Members of the JSON that this version does not know are ignored.
/// Errors: kCorruption; kUnsupported (newer version, or incompatible features, by name).
Result<Image> parse_image(ByteView bytes);

}  // namespace varve::chunkstore
