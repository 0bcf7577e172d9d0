/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of ppcli/dev/kernels.h: each calls the entry of the backend's table or, if that is
 * NULL, the plain version; and which kernels a backend has. */
#include "ppcli/dev/backend.h"

#include "ppcli/base/base.h"
#include "attention.h"

extern const struct pp_backend_ops pp_plain_ops;

const char *pp_kernel_name(enum pp_kernel k)
{
    static const char *const names[] = {
#define PP_KERNEL(name, type) #name,
#include "ppcli/dev/kernels.def"
    };
    return names[k];
}

bool pp_backend_has_kernel(const struct pp_backend_choice *choice, enum pp_kernel k)
{
    const struct pp_backend_ops *ops = choice->ops;
    if (!ops || !ops->own_memory)
        return true;
    const bool has[] = {
#define PP_KERNEL(name, type) ops->name != NULL,
#include "ppcli/dev/kernels.def"
    };
    return has[k];
}

#define PP_KERNEL(name, type)                                                                      \
    int pp_backend_##name(struct pp_backend *be, const struct type *a)                             \
    {                                                                                              \
        return (be->ops->name ? be->ops->name : pp_plain_ops.name)(be, a);                         \
    }
#include "ppcli/dev/kernels.def"

size_t pp_attention_scratch_floats(int queries, int keys, int group, int width)
{
    size_t D = (size_t)width, block = ATTENTION_KEYS + ATTENTION_GAP;
    size_t all = ((size_t)keys + ATTENTION_KEYS - 1) / ATTENTION_KEYS * ATTENTION_KEYS;
    size_t forward = 2 * all * D + ATTENTION_QUERIES * (all + ATTENTION_GAP);
    size_t backward = D * 5 * ATTENTION_KEYS + D * 2 * ATTENTION_QUERIES +
                      block * 2 * ATTENTION_QUERIES + 3 * (size_t)queries * (size_t)group;
    return ((forward > backward ? forward : backward) + 15) / 16 * 16;
}

int pp_backend_prepare_conv(struct pp_backend *be, const struct pp_conv_use *use)
{
    return be->ops->prepare_conv ? be->ops->prepare_conv(be, use) : 0;
}

size_t pp_backend_conv_packed_floats(const struct pp_backend_choice *choice,
                                     const struct pp_conv *g)
{
    bool packs = choice->ops && choice->ops->conv_packed_floats && !choice->unpacked;
    return packs ? choice->ops->conv_packed_floats(choice, g) : 0;
}

int pp_backend_conv_pack(struct pp_backend *be, const struct pp_conv *g, const float *W,
                         const float *b, float *packed)
{
    pp_assert(pp_backend_conv_packed_floats(&be->choice, g) > 0);
    return be->ops->conv_pack(be, g, W, b, packed);
}

size_t pp_backend_conv_scratch_floats(const struct pp_backend_choice *choice,
                                      const struct pp_conv *g, int B)
{
    bool uses = choice->ops && choice->ops->conv_scratch_floats;
    return uses ? choice->ops->conv_scratch_floats(choice, g, B) : 0;
}
