/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of 16 bits in files. */
#include <math.h>
#include <string.h>

#include "ppcli/base/base.h"

uint16_t pp_f16_round(float f)
{
    float size = fabsf(f);
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    int exponent = 0;
    if (size >= 65520.0f)
        return sign | 0x7c00;
    (void)frexpf(size, &exponent);
    int place = exponent - 11 < -24 ? -24 : exponent - 11; /* exponent of the last bit */
    long units = lrint(ldexp((double)size, -place));
    return (uint16_t)(sign | (uint16_t)((place + 24) * 1024L + units));
}

uint16_t pp_bf16_round(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* A half has 1 bit of sign, 5 of exponent (bias 15) and 10 of fraction. */
float pp_f16_value(uint16_t h)
{
    int exponent = h >> 10 & 31;
    float fraction = (float)(h & 1023);
    float x = exponent == 31 ? (fraction > 0 ? NAN : INFINITY)
              : exponent > 0 ? ldexpf(fraction + 1024, exponent - 25)
                             : ldexpf(fraction, -24);
    return h & 0x8000 ? -x : x;
}
