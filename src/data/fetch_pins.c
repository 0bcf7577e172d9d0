/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be downloaded: mirrors and digests. The digest of the inflated bytes is the data set;
 * .gz files differ from mirror to mirror (re-packed copies are common), so theirs only saves time.
 */
#include "fetch.h"

#include <stddef.h>
#include <string.h>

static const struct pp_pin mnist_files[] = {
    {"train-images-idx3-ubyte", 47040016,
     "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
     "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"},
    {"train-labels-idx1-ubyte", 60008,
     "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
     "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"},
    {"t10k-images-idx3-ubyte", 7840016,
     "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
     "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"},
    {"t10k-labels-idx1-ubyte", 10008,
     "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
     "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"},
};

static const char *const mnist_mirrors[] = {
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    NULL,
};

static const struct pp_pin fashion_files[] = {
    {"train-images-idx3-ubyte", 47040016,
     "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
     "08dc20ab1689590a0bcd66e874647b6ee8464e2d501b5a3f1f78831db19a3fdc"},
    {"train-labels-idx1-ubyte", 60008,
     "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
     "b0197879cbda89f3dc7b894f9fd52b858e68ea4182b6947c9d8c2b67e5f18dcc"},
    {"t10k-images-idx3-ubyte", 7840016,
     "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
     "78dcbbfb5a27efaf1b6c1d616caca68560be8766c5bffcb2791df9273a534229"},
    {"t10k-labels-idx1-ubyte", 10008,
     "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
     "42bd18137a62d5998cdeae52bf3a0676ac6b706f5cf8439b47bb5b151ae3dccf"},
};

static const char *const fashion_mirrors[] = {
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    NULL,
};

static const struct pp_fetch_set sets[] = {
    {"mnist", mnist_mirrors, mnist_files, sizeof(mnist_files) / sizeof(mnist_files[0])},
    {"fashion-mnist", fashion_mirrors, fashion_files,
     sizeof(fashion_files) / sizeof(fashion_files[0])},
};

const struct pp_fetch_set *pp_fetch_set(const char *name)
{
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        if (strcmp(sets[i].name, name) == 0) {
            return &sets[i];
        }
    }
    return NULL;
}
