#include "chunkstore/source/oci_image.h"

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "chunkstore/source/json_fields.h"
#include "chunkstore/source/tar_source.h"

namespace varve::chunkstore {
namespace {

using json_fields::Object;

constexpr uint64_t kJsonBytesMax = 4 << 20;
constexpr int kIndexDepthMax = 4;
constexpr size_t kManifestCountMax = 4096;
constexpr std::string_view kSha256Prefix = "sha256:";
constexpr std::string_view kReferenceType = "vnd.docker.reference.type";
constexpr const char* kReferenceNames[] = {"org.opencontainers.image.ref.name",
                                           "io.containerd.image.name"};

tl::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

/// Counts and hashes what passes through. Loop-local.
class HashingStream final : public ByteStream {
 public:
  explicit HashingStream(std::unique_ptr<ByteStream> from) : from_(std::move(from)) {}

  Result<size_t> read(MutableByteView to) override {
    VARVE_ASSIGN(const size_t got, from_->read(to));
    hash_.update(to.first(got));
    return got;
  }

  Status skip(uint64_t count) override {
    Bytes buffer(std::min<uint64_t>(count, 64 * 1024));
    while (count > 0) {
      const size_t want = std::min<uint64_t>(count, buffer.size());
      VARVE_TRY(read_exact(*this, MutableByteView(buffer).first(want)));
      count -= want;
    }
    return {};
  }

  /// Reads the rest and returns the digest of everything.
  Result<std::string> finish() {
    Bytes buffer(64 * 1024);
    for (;;) {
      VARVE_ASSIGN(const size_t got, read(buffer));
      if (got == 0) return hash_.finish().hex();
    }
  }

 private:
  std::unique_ptr<ByteStream> from_;
  Sha256 hash_;
};

/// Lets a HashingStream outlive the source that reads from it.
class BorrowedStream final : public ByteStream {
 public:
  explicit BorrowedStream(ByteStream& from) : from_(from) {}
  Result<size_t> read(MutableByteView to) override { return from_.read(to); }
  Status skip(uint64_t count) override { return from_.skip(count); }

 private:
  ByteStream& from_;
};

class VerifiedLayerSource final : public EntrySource {
 public:
  VerifiedLayerSource(std::unique_ptr<HashingStream> stream, OciImage::Layer layer)
      : stream_(std::move(stream)), layer_(std::move(layer)) {}

  Status read_into(EntrySink& sink) override {
    const auto tar = make_tar_source(std::make_unique<BorrowedStream>(*stream_), layer_.name,
                                     TarMode::kOciLayer);
    VARVE_TRY(tar->read_into(sink));
    VARVE_ASSIGN(const std::string got, stream_->finish());
    const std::string& expected =
        layer_.stored_sha256.empty() ? layer_.tar_sha256 : layer_.stored_sha256;
    if (!expected.empty() && got != expected) {
      return fail(ErrorCode::kCorruption, "layer " + quoted(layer_.name) + " has SHA-256 " + got +
                                              ", the image says " + expected);
    }
    return {};
  }

 private:
  std::unique_ptr<HashingStream> stream_;
  const OciImage::Layer layer_;
};

/// The hex digits of `sha256:…`.
Result<std::string> parse_digest(std::string_view digest) {
  if (digest.starts_with(kSha256Prefix)) {
    const std::string_view hex = digest.substr(kSha256Prefix.size());
    if (Digest::from_hex(hex)) return std::string(hex);
  }
  return fail(ErrorCode::kUnsupported, "digest " + quoted(digest) + " is not of the form sha256:…");
}

struct Descriptor {
  std::string media_type;
  std::string sha256;
  uint64_t size = 0;
  std::string platform;  ///< As platform_of().
  std::map<std::string, std::string> annotations;
};

/// `os/architecture[/variant]` as `object`, an image's configuration or the member `platform` of a
/// descriptor, states it; "" where it does not.
Result<std::string> platform_of(const Object& object) {
  VARVE_ASSIGN(const std::string os, json_fields::get_string(object, "os"));
  VARVE_ASSIGN(const std::string architecture, json_fields::get_string(object, "architecture"));
  VARVE_ASSIGN(const std::string variant, json_fields::get_string(object, "variant"));
  if (os.empty() || architecture.empty()) return std::string();
  return os + "/" + architecture + (variant.empty() ? "" : "/" + variant);
}

Result<Descriptor> parse_descriptor(const Object& object) {
  Descriptor descriptor;
  VARVE_ASSIGN(descriptor.media_type, json_fields::get_string(object, "mediaType"));
  VARVE_ASSIGN(const std::string digest, json_fields::get_string(object, "digest"));
  VARVE_ASSIGN(descriptor.sha256, parse_digest(digest));
  VARVE_ASSIGN(descriptor.size, json_fields::get_natural(object, "size"));
  VARVE_ASSIGN(descriptor.annotations, json_fields::get_string_map(object, "annotations"));
  VARVE_ASSIGN(const Object platform, json_fields::get_object(object, "platform"));
  VARVE_ASSIGN(descriptor.platform, platform_of(platform));
  return descriptor;
}

Result<FileRange> require_file(const ImageFiles& files, const std::string& name) {
  VARVE_ASSIGN(const std::optional<FileRange> range, files.find(name));
  if (!range) {
    return fail(ErrorCode::kNotFound, quoted(files.display_name()) + " has no " + quoted(name));
  }
  return *range;
}

Result<Bytes> read_json_file(const FileRange& range, const std::string& name) {
  if (range.size > kJsonBytesMax) {
    return invalid(quoted(name) + " of " + std::to_string(range.size) +
                   " bytes is larger than the 4 MiB allowed");
  }
  Bytes bytes(range.size);
  if (auto status = read_exact(*range.open(), bytes); !status) {
    return fail(std::move(status).error(), "reading " + quoted(name));
  }
  return bytes;
}

std::string blob_name(const Descriptor& descriptor) {
  return "blobs/sha256/" + descriptor.sha256;
}

Result<FileRange> find_blob(const ImageFiles& files, const Descriptor& descriptor) {
  VARVE_ASSIGN(FileRange range, require_file(files, blob_name(descriptor)));
  if (range.size != descriptor.size) {
    return fail(ErrorCode::kCorruption, quoted(blob_name(descriptor)) + " has " +
                                            std::to_string(range.size) + " bytes, the image says " +
                                            std::to_string(descriptor.size));
  }
  return range;
}

Result<Object> read_json_blob(const ImageFiles& files, const Descriptor& descriptor) {
  const std::string name = blob_name(descriptor);
  VARVE_ASSIGN(const FileRange range, find_blob(files, descriptor));
  VARVE_ASSIGN(const Bytes bytes, read_json_file(range, name));
  if (sha256(bytes).hex() != descriptor.sha256) {
    return fail(ErrorCode::kCorruption, quoted(name) + " does not match its digest");
  }
  auto object = json_fields::parse_object(bytes);
  if (!object) return fail(std::move(object).error(), quoted(name));
  return object;
}

bool is_index(std::string_view media_type) {
  return media_type == "application/vnd.oci.image.index.v1+json" ||
         media_type == "application/vnd.docker.distribution.manifest.list.v2+json";
}

bool is_manifest(std::string_view media_type) {
  return media_type.empty() || media_type == "application/vnd.oci.image.manifest.v1+json" ||
         media_type == "application/vnd.docker.distribution.manifest.v2+json";
}

bool is_layer(std::string_view media_type) {
  static constexpr std::string_view kTypes[] = {
      "application/vnd.oci.image.layer.v1.tar",
      "application/vnd.oci.image.layer.nondistributable.v1.tar",
      "application/vnd.docker.image.rootfs.diff.tar",
      "application/vnd.docker.image.rootfs.foreign.diff.tar"};
  for (const std::string_view type : kTypes) {
    if (!media_type.starts_with(type)) continue;
    const std::string_view rest = media_type.substr(type.size());
    if (rest.empty() || rest == "+gzip" || rest == "+zstd" || rest == ".gzip" || rest == ".zstd") {
      return true;
    }
  }
  return false;
}

/// `linux/arm64` asks for any variant, `linux/arm64/v8` for that one.
bool is_platform(std::string_view stated, std::string_view wanted) {
  return stated == wanted ||
         (stated.starts_with(wanted) && stated.size() > wanted.size() &&
          stated[wanted.size()] == '/' && std::count(wanted.begin(), wanted.end(), '/') == 1);
}

bool has_reference(const Descriptor& descriptor, const std::string& reference) {
  return std::any_of(std::begin(kReferenceNames), std::end(kReferenceNames), [&](const char* name) {
    const auto found = descriptor.annotations.find(name);
    return found != descriptor.annotations.end() && found->second == reference;
  });
}

/// The platform that the configuration of the image `manifest` states; "" where it does not, or is
/// no configuration of an image.
Result<std::string> config_platform(const ImageFiles& files, const Descriptor& manifest) {
  VARVE_ASSIGN(const Object object, read_json_blob(files, manifest));
  VARVE_ASSIGN(const Object config_object, json_fields::get_object(object, "config"));
  VARVE_ASSIGN(const Descriptor config, parse_descriptor(config_object));
  if (config.media_type != "application/vnd.oci.image.config.v1+json" &&
      config.media_type != "application/vnd.docker.container.image.v1+json") {
    return std::string();
  }
  VARVE_ASSIGN(const Object config_json, read_json_blob(files, config));
  return platform_of(config_json);
}

/// Collects the image manifests below an index that fit the options.
class ManifestFinder {
 public:
  ManifestFinder(const ImageFiles& files, const OciOptions& options)
      : files_(files), options_(options) {}

  Status visit(const Object& index, int depth, bool is_referenced) {
    if (depth > kIndexDepthMax) return invalid("indexes are nested too deeply");
    VARVE_ASSIGN(const auto manifests, json_fields::get_objects(index, "manifests"));
    for (const Object& object : manifests) {
      if (++seen_count_ > kManifestCountMax) return invalid("too many manifests");
      VARVE_ASSIGN(Descriptor descriptor, parse_descriptor(object));
      const bool is_wanted = is_referenced || has_reference(descriptor, options_.reference);
      // An attestation says something about an image; it is none.
      if (descriptor.annotations.contains(std::string(kReferenceType))) continue;
      if (is_index(descriptor.media_type)) {
        VARVE_ASSIGN(const Object inner, read_json_blob(files_, descriptor));
        VARVE_TRY(visit(inner, depth + 1, is_wanted));
      } else if (is_wanted && is_manifest(descriptor.media_type)) {
        VARVE_TRY(add(std::move(descriptor)));
      }
    }
    return {};
  }

  Result<Descriptor> choose() const {
    if (found_.empty()) {
      std::string seen;
      for (const std::string& platform : other_platforms_) seen += " " + quoted(platform);
      return fail(ErrorCode::kNotFound,
                  "no image for platform " + options_.platform +
                      (options_.reference.empty() ? "" : " named " + quoted(options_.reference)) +
                      (seen.empty() ? "" : "; there is" + seen));
    }
    if (found_.size() > 1) {
      return invalid("the layout holds " + std::to_string(found_.size()) +
                     " images for this platform: say which one by its reference name");
    }
    return found_.begin()->second;
  }

 private:
  Status add(Descriptor descriptor) {
    if (descriptor.platform.empty()) {
      VARVE_ASSIGN(descriptor.platform, config_platform(files_, descriptor));
    }
    if (!descriptor.platform.empty() && !is_platform(descriptor.platform, options_.platform)) {
      other_platforms_.insert(descriptor.platform);
      return {};
    }
    found_.emplace(descriptor.sha256, std::move(descriptor));
    return {};
  }

  const ImageFiles& files_;
  const OciOptions& options_;
  std::map<std::string, Descriptor> found_;  // one image may have several names
  std::set<std::string> other_platforms_;
  size_t seen_count_ = 0;
};

Result<ImageConfig> parse_config(const Object& object) {
  ImageConfig config;
  VARVE_ASSIGN(const Object run, json_fields::get_object(object, "config"));
  VARVE_ASSIGN(config.env, json_fields::get_strings(run, "Env"));
  VARVE_ASSIGN(config.cwd, json_fields::get_string(run, "WorkingDir"));
  VARVE_ASSIGN(config.user, json_fields::get_string(run, "User"));
  VARVE_ASSIGN(config.entrypoint, json_fields::get_strings(run, "Entrypoint"));
  VARVE_ASSIGN(config.cmd, json_fields::get_strings(run, "Cmd"));
  VARVE_ASSIGN(config.stop_signal, json_fields::get_string(run, "StopSignal"));
  VARVE_ASSIGN(config.labels, json_fields::get_string_map(run, "Labels"));
  return config;
}

Status check_layer_count(size_t count) {
  if (count == 0) return invalid("the image has no layers");
  if (count > kImageLayerCountMax) {
    return invalid("the image has " + std::to_string(count) + " layers, at most " +
                   std::to_string(kImageLayerCountMax) + " can be stacked");
  }
  return {};
}

Result<OciImage> open_manifest(const ImageFiles& files, const Descriptor& descriptor) {
  VARVE_ASSIGN(const Object manifest, read_json_blob(files, descriptor));
  VARVE_ASSIGN(const Object config_object, json_fields::get_object(manifest, "config"));
  VARVE_ASSIGN(const Descriptor config, parse_descriptor(config_object));
  VARVE_ASSIGN(const Object config_json, read_json_blob(files, config));
  OciImage image;
  VARVE_ASSIGN(image.config, parse_config(config_json));
  VARVE_ASSIGN(const auto layers, json_fields::get_objects(manifest, "layers"));
  VARVE_TRY(check_layer_count(layers.size()));
  for (const Object& object : layers) {
    VARVE_ASSIGN(const Descriptor layer, parse_descriptor(object));
    if (!is_layer(layer.media_type)) {
      return fail(ErrorCode::kUnsupported, "layer of media type " + quoted(layer.media_type));
    }
    VARVE_ASSIGN(FileRange range, find_blob(files, layer));
    image.layers.push_back({"sha256:" + layer.sha256, std::move(range), layer.sha256, ""});
  }
  return image;
}

Result<Object> choose_docker_image(const boost::json::array& images, const OciOptions& options) {
  std::vector<Object> found;
  for (const boost::json::value& value : images) {
    VARVE_ASSIGN(Object image, json_fields::to_object(value, "image"));
    VARVE_ASSIGN(const auto tags, json_fields::get_strings(image, "RepoTags"));
    if (options.reference.empty() ||
        std::find(tags.begin(), tags.end(), options.reference) != tags.end()) {
      found.push_back(std::move(image));
    }
  }
  if (found.empty()) {
    return fail(ErrorCode::kNotFound, "no image named " + quoted(options.reference));
  }
  if (found.size() > 1) {
    return invalid("the archive holds " + std::to_string(found.size()) +
                   " images: say which one by its reference name");
  }
  return found.front();
}

Result<OciImage> open_docker_image(const ImageFiles& files, const OciOptions& options) {
  VARVE_ASSIGN(const FileRange manifest, require_file(files, "manifest.json"));
  VARVE_ASSIGN(const Bytes manifest_text, read_json_file(manifest, "manifest.json"));
  VARVE_ASSIGN(const boost::json::array images, json_fields::parse_array(manifest_text));
  VARVE_ASSIGN(const Object chosen, choose_docker_image(images, options));
  VARVE_ASSIGN(const std::string config_name, json_fields::get_string(chosen, "Config"));
  VARVE_ASSIGN(const FileRange config_file, require_file(files, config_name));
  VARVE_ASSIGN(const Bytes config_text, read_json_file(config_file, config_name));
  VARVE_ASSIGN(const Object config, json_fields::parse_object(config_text));
  VARVE_ASSIGN(const std::string platform, platform_of(config));
  if (!platform.empty() && !is_platform(platform, options.platform)) {
    return fail(ErrorCode::kNotFound,
                "no image for platform " + options.platform + "; there is " + quoted(platform));
  }
  OciImage image;
  VARVE_ASSIGN(image.config, parse_config(config));
  VARVE_ASSIGN(const Object rootfs, json_fields::get_object(config, "rootfs"));
  VARVE_ASSIGN(const auto diff_ids, json_fields::get_strings(rootfs, "diff_ids"));
  VARVE_ASSIGN(const auto layers, json_fields::get_strings(chosen, "Layers"));
  VARVE_TRY(check_layer_count(layers.size()));
  if (diff_ids.size() != layers.size()) {
    return invalid("the config names " + std::to_string(diff_ids.size()) +
                   " layers, the manifest " + std::to_string(layers.size()));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    VARVE_ASSIGN(FileRange range, require_file(files, layers[i]));
    VARVE_ASSIGN(std::string sha256, parse_digest(diff_ids[i]));
    image.layers.push_back({layers[i], std::move(range), "", std::move(sha256)});
  }
  return image;
}

}  // namespace

Result<std::unique_ptr<EntrySource>> OciImage::open_layer(const Layer& layer) {
  std::unique_ptr<ByteStream> stream = layer.file.open();
  if (layer.stored_sha256.empty()) {
    auto plain = decompress(std::move(stream));
    if (!plain) return fail(std::move(plain).error(), "layer " + quoted(layer.name));
    stream = std::move(*plain);
  }
  return std::unique_ptr<EntrySource>(std::make_unique<VerifiedLayerSource>(
      std::make_unique<HashingStream>(std::move(stream)), layer));
}

Result<ImageLayoutKind> detect_image_layout(const ImageFiles& files) {
  VARVE_ASSIGN(const auto layout, files.find("oci-layout"));
  VARVE_ASSIGN(const auto index, files.find("index.json"));
  if (layout && index) return ImageLayoutKind::kOciLayout;
  VARVE_ASSIGN(const auto manifest, files.find("manifest.json"));
  return manifest ? ImageLayoutKind::kDockerArchive : ImageLayoutKind::kNone;
}

Result<OciImage> open_oci_layout(const ImageFiles& files, const OciOptions& options) {
  const auto open = [&]() -> Result<OciImage> {
    VARVE_ASSIGN(const FileRange range, require_file(files, "index.json"));
    VARVE_ASSIGN(const Bytes text, read_json_file(range, "index.json"));
    VARVE_ASSIGN(const Object index, json_fields::parse_object(text));
    ManifestFinder finder(files, options);
    VARVE_TRY(finder.visit(index, 0, options.reference.empty()));
    VARVE_ASSIGN(const Descriptor manifest, finder.choose());
    return open_manifest(files, manifest);
  };
  auto image = open();
  if (!image) {
    return fail(std::move(image).error(), "reading OCI image " + quoted(files.display_name()));
  }
  return image;
}

Result<OciImage> open_docker_archive(const ImageFiles& files, const OciOptions& options) {
  auto image = open_docker_image(files, options);
  if (!image) {
    return fail(std::move(image).error(), "reading Docker archive " + quoted(files.display_name()));
  }
  return image;
}

}  // namespace varve::chunkstore
