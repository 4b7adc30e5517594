/* SPDX-License-Identifier: Apache-2.0 */
/* Two versions of a library of one size. What is a function's first instruction in the old one lies, in the
 * new one, within an operand (of answer) and at another instruction (of state). */
	.text
	.p2align 12
	.globl start
	.type start, @function
start:
	ret
	.org start + 15, 0x90
#ifdef OLD
	nop
	.globl cudaMemcpy
	.type cudaMemcpy, @function
cudaMemcpy:		/* start + 16 */
	push %rbp
	xor %eax, %eax
	pop %rbp
	ret
	.size cudaMemcpy, . - cudaMemcpy
	.org start + 32, 0x90
	.globl cudaFree
	.type cudaFree, @function
cudaFree:
	push %rbp
	xor %eax, %eax
	pop %rbp
	ret
	.size cudaFree, . - cudaFree
	.org start + 64, 0x90
#else
	.globl answer
	.type answer, @function
answer:			/* start + 15: the constant begins where cudaMemcpy did */
	mov $0x11223344, %eax
	ret
	.size answer, . - answer
	.org start + 32, 0x90
	.globl state
	.type state, @function
state:			/* where cudaFree did; with a push too much it returns to nowhere */
	mov %rdi, %rax
	ret
	.size state, . - state
	.org start + 64, 0x90
	.globl cudaMemcpy
	.type cudaMemcpy, @function
cudaMemcpy:
	push %rbp
	xor %eax, %eax
	pop %rbp
	ret
	.size cudaMemcpy, . - cudaMemcpy
#endif
	.org start + 256, 0x90
	.section .note.GNU-stack, "", @progbits
