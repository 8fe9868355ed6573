// SPDX-FileCopyrightText: 2026 The HAAN developers
// SPDX-License-Identifier: Apache-2.0
// What this project uses of the ECP5's multiplier: unsigned factors, registers on one clock, enabled always, with synchronous resets.
module MULT18X18D #(
    parameter REG_INPUTA_CLK = "NONE", REG_INPUTA_CE = "CE0", REG_INPUTA_RST = "RST0",
    parameter REG_INPUTB_CLK = "NONE", REG_INPUTB_CE = "CE0", REG_INPUTB_RST = "RST0",
    parameter REG_OUTPUT_CLK = "NONE", REG_OUTPUT_CE = "CE0", REG_OUTPUT_RST = "RST0",
    parameter RESETMODE = "SYNC"
) (
    input A0, A1, A2, A3, A4, A5, A6, A7, A8, A9, A10, A11, A12, A13, A14, A15, A16, A17,
    input B0, B1, B2, B3, B4, B5, B6, B7, B8, B9, B10, B11, B12, B13, B14, B15, B16, B17,
    input C0, C1, C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13, C14, C15, C16, C17,
    input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB, CLK0, CE0, RST0, RST1, RST2,
    output P0, P1, P2, P3, P4, P5, P6, P7, P8, P9, P10, P11, P12, P13, P14, P15, P16, P17,
    output P18, P19, P20, P21, P22, P23, P24, P25, P26, P27, P28, P29, P30, P31, P32, P33, P34, P35
);
    function chosen_reset(input [31:0] name, input [2:0] resets);
        chosen_reset = name == "RST0" ? resets[0] : name == "RST1" ? resets[1] : resets[2];
    endfunction
    wire [2:0] resets = {RST2, RST1, RST0};
    wire [17:0] a = {A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0};
    wire [17:0] b = {B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0};
    reg [17:0] a_register, b_register;
    reg [35:0] p_register;
    wire [17:0] a_used = REG_INPUTA_CLK == "CLK0" ? a_register : a;
    wire [17:0] b_used = REG_INPUTB_CLK == "CLK0" ? b_register : b;
    wire [35:0] product = a_used * b_used;
    assign {P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18, P17, P16, P15, P14, P13, P12, P11,
            P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0} = REG_OUTPUT_CLK == "CLK0" ? p_register : product;
    always @(posedge CLK0) begin
        a_register <= chosen_reset(REG_INPUTA_RST, resets) ? 0 : a;
        b_register <= chosen_reset(REG_INPUTB_RST, resets) ? 0 : b;
        p_register <= chosen_reset(REG_OUTPUT_RST, resets) ? 0 : product;
    end
endmodule
