// Gloo's headers of its TCP transport need this one, which its packages do not
// install. The library's own is taken where it is there. Here are the types as
// far as those headers name them: a buffer's own, a reference to a buffer that
// may be gone, and one that keeps it, each of the size and the meaning of a
// standard pointer. The library alone makes the first and waits for its end.
#if __has_include_next(<gloo/common/memory.h>)
#include_next <gloo/common/memory.h>
#else
#ifndef DRUN_GLOO_MEMORY_H
#define DRUN_GLOO_MEMORY_H

#include <memory>

namespace gloo {

template <typename T>
struct ShareableNonOwningPtr {
    std::shared_ptr<T> buffer;
};

template <typename T>
struct WeakNonOwningPtr {
    WeakNonOwningPtr() = default;
    explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T> &of) : buffer(of.buffer) {}
    std::weak_ptr<T> buffer;
};

template <typename T>
struct NonOwningPtr {
    std::shared_ptr<T> buffer;
};

} // namespace gloo

#endif
#endif
