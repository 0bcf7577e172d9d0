/* SPDX-License-Identifier: Apache-2.0 */
/* Names for code that is compiled once for each instruction set: PPCLI_ISA is base, neon, avx2,
 * avx512 or avx512_bf16, set on the command line of the compiler. */
#ifndef PPCLI_DEV_CPU_ISA_H
#define PPCLI_DEV_CPU_ISA_H

#ifdef PPCLI_ISA
#define CPU_JOIN_(a, b) a##_##b
#define CPU_JOIN(a, b) CPU_JOIN_(a, b)
#define CPU_LOOP(name) CPU_JOIN(cpu_##name, PPCLI_ISA) /* cpu_NAME_avx2 */
#define CPU_STRING_(x) #x
#define CPU_STRING(x) CPU_STRING_(x)
#define CPU_ISA CPU_STRING(PPCLI_ISA) /* "avx2" */
#endif

#endif
