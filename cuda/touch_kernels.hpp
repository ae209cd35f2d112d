// SPDX-License-Identifier: Apache-2.0
// The kernels of BlockToucher as PTX text, which the driver compiles for the device at hand. Word
// i of block n is high32(n * A) xor high32(i * B), with A and B odd: two blocks differ in every
// word or (once in 2^32 pairs) in none. Both kernels walk the words in strides of the whole grid.
#pragma once

namespace quarry::cuda {

inline constexpr char kTouchKernels[] = R"ptx(
.version 7.0
.target sm_70
.address_size 64

// What the checks have found: [0] wrong words, [1] 1 + the number of the first wrong block.
.visible .global .align 8 .u64 wrong_words[2];

.visible .entry fill_words(
    .param .u64 fill_address, .param .u64 fill_count, .param .u64 fill_number)
{
    .reg .pred %done;
    .reg .b32 %low, %seed, %word, %ctas, %threads, %cta, %thread;
    .reg .b64 %base, %count, %number, %i, %stride, %mixed, %place;

    ld.param.u64 %base, [fill_address];
    ld.param.u64 %count, [fill_count];
    ld.param.u64 %number, [fill_number];
    cvta.to.global.u64 %base, %base;
    mul.lo.u64 %mixed, %number, 0xd1342543de82ef95;
    mov.b64 {%low, %seed}, %mixed;
    mov.u32 %cta, %ctaid.x;
    mov.u32 %ctas, %nctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %i, %cta, %threads;
    cvt.u64.u32 %stride, %thread;
    add.u64 %i, %i, %stride;
    mul.wide.u32 %stride, %ctas, %threads;
fill_next:
    setp.ge.u64 %done, %i, %count;
    @%done bra fill_end;
    mul.lo.u64 %mixed, %i, 0x9e3779b97f4a7c15;
    mov.b64 {%low, %word}, %mixed;
    xor.b32 %word, %word, %seed;
    shl.b64 %place, %i, 2;
    add.u64 %place, %base, %place;
    st.global.u32 [%place], %word;
    add.u64 %i, %i, %stride;
    bra fill_next;
fill_end:
    ret;
}

.visible .entry check_words(
    .param .u64 check_address, .param .u64 check_count, .param .u64 check_number)
{
    .reg .pred %done, %same;
    .reg .b32 %low, %seed, %word, %found, %ctas, %threads, %cta, %thread;
    .reg .b64 %base, %count, %number, %i, %stride, %mixed, %place, %wrong, %old;

    ld.param.u64 %base, [check_address];
    ld.param.u64 %count, [check_count];
    ld.param.u64 %number, [check_number];
    cvta.to.global.u64 %base, %base;
    mul.lo.u64 %mixed, %number, 0xd1342543de82ef95;
    mov.b64 {%low, %seed}, %mixed;
    mov.u64 %wrong, 0;
    mov.u32 %cta, %ctaid.x;
    mov.u32 %ctas, %nctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %i, %cta, %threads;
    cvt.u64.u32 %stride, %thread;
    add.u64 %i, %i, %stride;
    mul.wide.u32 %stride, %ctas, %threads;
check_next:
    setp.ge.u64 %done, %i, %count;
    @%done bra check_report;
    mul.lo.u64 %mixed, %i, 0x9e3779b97f4a7c15;
    mov.b64 {%low, %word}, %mixed;
    xor.b32 %word, %word, %seed;
    shl.b64 %place, %i, 2;
    add.u64 %place, %base, %place;
    ld.global.u32 %found, [%place];
    setp.eq.u32 %same, %found, %word;
    @!%same add.u64 %wrong, %wrong, 1;
    add.u64 %i, %i, %stride;
    bra check_next;
check_report:
    setp.eq.u64 %same, %wrong, 0;
    @%same bra check_end;
    mov.u64 %place, wrong_words;
    atom.global.add.u64 %old, [%place], %wrong;
    add.u64 %number, %number, 1;
    atom.global.cas.b64 %old, [%place+8], 0, %number;
check_end:
    ret;
}
)ptx";

}  // namespace quarry::cuda
