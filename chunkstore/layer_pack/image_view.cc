#include "chunkstore/layer_pack/image_view.h"

#include <deque>

#include "base/bytes.h"
#include "chunkstore/build/temp_directory.h"
#include "chunkstore/source/archive_path.h"

namespace varve::layer_pack {
namespace {

using chunkstore::erofs::FileType;
using chunkstore::erofs::MergedNode;

constexpr int kSymlinkCountMax = 40;  // as the kernel's MAXSYMLINKS

std::deque<std::string> split_path(std::string_view path) {
  std::deque<std::string> components;
  for (size_t start = 0; start < path.size();) {
    const size_t slash = std::min(path.find('/', start), path.size());
    if (slash > start) components.emplace_back(path.substr(start, slash - start));
    start = slash + 1;
  }
  return components;
}

}  // namespace

Deadline store_deadline() {
  return deadline_after_ms(kStoreTimeoutMs);
}

Result<ResolvedName> resolve_name(const chunkstore::ImageStore& images, std::string_view name) {
  auto image = images.resolve(name, store_deadline());
  if (image) return ResolvedName{image->image.layers, std::move(*image)};
  if (image.error().code() != ErrorCode::kNotFound) {
    return tl::unexpected<Error>(std::move(image).error());
  }
  VARVE_ASSIGN(const std::optional<Digest> layer, images.find_layer(name, store_deadline()));
  if (layer) return ResolvedName{{*layer}, std::nullopt};
  return tl::unexpected<Error>(std::move(image).error());
}

Result<ImageView> ImageView::open(std::shared_ptr<chunkstore::Store> store,
                                  const std::vector<Digest>& layers,
                                  const std::string& temp_directory) {
  const std::string spool_directory = chunkstore::temp_directory_or_default(temp_directory);
  ImageView view;
  std::vector<const chunkstore::erofs::Reader*> readers;
  for (const Digest& layer : layers) {
    chunkstore::LayerImageSource::Options options;
    options.timeout_ms = kStoreTimeoutMs;
    auto source = chunkstore::LayerImageSource::open(store, layer, spool_directory, options);
    if (!source) return fail(std::move(source).error(), "opening layer " + layer.short_hex());
    auto reader = chunkstore::erofs::Reader::open(**source);
    if (!reader) return fail(std::move(reader).error(), "opening layer " + layer.short_hex());
    view.sources_.push_back(std::move(*source));
    view.readers_.push_back(std::make_unique<chunkstore::erofs::Reader>(std::move(*reader)));
    readers.push_back(view.readers_.back().get());
  }
  view.tree_ = std::make_unique<chunkstore::erofs::MergedTree>(std::move(readers));
  return view;
}

Result<MergedNode> ImageView::find(std::string_view path, bool follow_last) const {
  const auto not_found = [&](const std::string& why) {
    return fail(ErrorCode::kNotFound, quoted(path) + ": " + why);
  };
  VARVE_ASSIGN(const MergedNode root, tree_->root());
  std::vector<MergedNode> stack{root};  // what `..` goes back through
  std::deque<std::string> rest = split_path(path);
  int symlink_count = 0;
  while (!rest.empty()) {
    const std::string name = std::move(rest.front());
    rest.pop_front();
    if (!stack.back().is_directory()) return not_found("a part of it is no directory");
    if (name == ".") continue;
    if (name == "..") {
      if (stack.size() > 1) stack.pop_back();
      continue;
    }
    VARVE_ASSIGN(auto child, tree_->lookup(stack.back(), name));
    if (!child) return not_found("there is no " + quoted(name));
    const bool is_symlink = child->type == static_cast<uint8_t>(FileType::kSymlink);
    if (!is_symlink || (rest.empty() && !follow_last)) {
      stack.push_back(std::move(*child));
      continue;
    }
    if (++symlink_count > kSymlinkCountMax) {
      return fail(ErrorCode::kInvalidArgument, quoted(path) + ": too many symlinks");
    }
    VARVE_ASSIGN(const auto inode, tree_->inode(*child));
    VARVE_ASSIGN(const std::string target, tree_->reader(*child).read_link(inode));
    if (target.starts_with('/')) stack.resize(1);
    const std::deque<std::string> components = split_path(target);
    rest.insert(rest.begin(), components.begin(), components.end());
  }
  return stack.back();
}

}  // namespace varve::layer_pack
