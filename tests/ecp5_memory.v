// SPDX-FileCopyrightText: 2026 The HAAN developers
// SPDX-License-Identifier: Apache-2.0
// What this project uses of the ECP5's block RAM: 2,048 groups of 9 bits, no output registers, synchronous reset of what was read.
// A port of 36 bits takes the data pins of both ports, and only writes or only reads.
module DP16KD #(
    parameter DATA_WIDTH_A = 18, DATA_WIDTH_B = 18, REGMODE_A = "NOREG", REGMODE_B = "NOREG", RESETMODE = "SYNC", ASYNC_RESET_RELEASE =
        "SYNC", CSDECODE_A = "0b000", CSDECODE_B = "0b000", CLKAMUX = "CLKA", CLKBMUX = "CLKB", WRITEMODE_A = "NORMAL", WRITEMODE_B =
        "NORMAL", GSR = "AUTO",
    parameter [319:0] INITVAL_00 = 320'b0, INITVAL_01 = 320'b0, INITVAL_02 = 320'b0, INITVAL_03 = 320'b0, INITVAL_04 = 320'b0, INITVAL_05 =
        320'b0, INITVAL_06 = 320'b0, INITVAL_07 = 320'b0, INITVAL_08 = 320'b0, INITVAL_09 = 320'b0, INITVAL_0A = 320'b0, INITVAL_0B =
        320'b0, INITVAL_0C = 320'b0, INITVAL_0D = 320'b0, INITVAL_0E = 320'b0, INITVAL_0F = 320'b0, INITVAL_10 = 320'b0, INITVAL_11 =
        320'b0, INITVAL_12 = 320'b0, INITVAL_13 = 320'b0, INITVAL_14 = 320'b0, INITVAL_15 = 320'b0, INITVAL_16 = 320'b0, INITVAL_17 =
        320'b0, INITVAL_18 = 320'b0, INITVAL_19 = 320'b0, INITVAL_1A = 320'b0, INITVAL_1B = 320'b0, INITVAL_1C = 320'b0, INITVAL_1D =
        320'b0, INITVAL_1E = 320'b0, INITVAL_1F = 320'b0, INITVAL_20 = 320'b0, INITVAL_21 = 320'b0, INITVAL_22 = 320'b0, INITVAL_23 =
        320'b0, INITVAL_24 = 320'b0, INITVAL_25 = 320'b0, INITVAL_26 = 320'b0, INITVAL_27 = 320'b0, INITVAL_28 = 320'b0, INITVAL_29 =
        320'b0, INITVAL_2A = 320'b0, INITVAL_2B = 320'b0, INITVAL_2C = 320'b0, INITVAL_2D = 320'b0, INITVAL_2E = 320'b0, INITVAL_2F =
        320'b0, INITVAL_30 = 320'b0, INITVAL_31 = 320'b0, INITVAL_32 = 320'b0, INITVAL_33 = 320'b0, INITVAL_34 = 320'b0, INITVAL_35 =
        320'b0, INITVAL_36 = 320'b0, INITVAL_37 = 320'b0, INITVAL_38 = 320'b0, INITVAL_39 = 320'b0, INITVAL_3A = 320'b0, INITVAL_3B =
        320'b0, INITVAL_3C = 320'b0, INITVAL_3D = 320'b0, INITVAL_3E = 320'b0, INITVAL_3F = 320'b0
) (
    input ADA0, ADA1, ADA2, ADA3, ADA4, ADA5, ADA6, ADA7, ADA8, ADA9, ADA10, ADA11, ADA12, ADA13,
    input DIA0, DIA1, DIA2, DIA3, DIA4, DIA5, DIA6, DIA7, DIA8, DIA9, DIA10, DIA11, DIA12, DIA13, DIA14, DIA15, DIA16, DIA17,
    output DOA0, DOA1, DOA2, DOA3, DOA4, DOA5, DOA6, DOA7, DOA8, DOA9, DOA10, DOA11, DOA12, DOA13, DOA14, DOA15, DOA16, DOA17,
    input CLKA, CEA, OCEA, WEA, RSTA, CSA0, CSA1, CSA2,
    input ADB0, ADB1, ADB2, ADB3, ADB4, ADB5, ADB6, ADB7, ADB8, ADB9, ADB10, ADB11, ADB12, ADB13,
    input DIB0, DIB1, DIB2, DIB3, DIB4, DIB5, DIB6, DIB7, DIB8, DIB9, DIB10, DIB11, DIB12, DIB13, DIB14, DIB15, DIB16, DIB17,
    output DOB0, DOB1, DOB2, DOB3, DOB4, DOB5, DOB6, DOB7, DOB8, DOB9, DOB10, DOB11, DOB12, DOB13, DOB14, DOB15, DOB16, DOB17,
    input CLKB, CEB, OCEB, WEB, RSTB, CSB0, CSB1, CSB2
);
    localparam [64*320-1:0] INITIAL = {INITVAL_3F, INITVAL_3E, INITVAL_3D, INITVAL_3C, INITVAL_3B, INITVAL_3A, INITVAL_39, INITVAL_38,
        INITVAL_37, INITVAL_36, INITVAL_35, INITVAL_34, INITVAL_33, INITVAL_32, INITVAL_31, INITVAL_30, INITVAL_2F, INITVAL_2E, INITVAL_2D,
        INITVAL_2C, INITVAL_2B, INITVAL_2A, INITVAL_29, INITVAL_28, INITVAL_27, INITVAL_26, INITVAL_25, INITVAL_24, INITVAL_23, INITVAL_22,
        INITVAL_21, INITVAL_20, INITVAL_1F, INITVAL_1E, INITVAL_1D, INITVAL_1C, INITVAL_1B, INITVAL_1A, INITVAL_19, INITVAL_18, INITVAL_17,
        INITVAL_16, INITVAL_15, INITVAL_14, INITVAL_13, INITVAL_12, INITVAL_11, INITVAL_10, INITVAL_0F, INITVAL_0E, INITVAL_0D, INITVAL_0C,
        INITVAL_0B, INITVAL_0A, INITVAL_09, INITVAL_08, INITVAL_07, INITVAL_06, INITVAL_05, INITVAL_04, INITVAL_03, INITVAL_02, INITVAL_01,
        INITVAL_00};
    wire [13:0] place_a = {ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0};
    wire [17:0] given_a = {DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9, DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1,
        DIA0};
    wire [35:0] data_a;
    wire [35:0] read_a;
    wire [13:0] place_b = {ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0};
    wire [17:0] given_b = {DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9, DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1,
        DIB0};
    wire [35:0] data_b;
    wire [35:0] read_b;
    assign data_a = DATA_WIDTH_A == 36 ? {given_b, given_a} : {18'b0, given_a};
    assign data_b = {18'b0, given_b};
    assign {DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9, DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1, DOA0} =
        DATA_WIDTH_B == 36 ? read_b[17:0] : read_a[17:0];
    assign {DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9, DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1, DOB0} =
        DATA_WIDTH_B == 36 ? read_b[35:18] : read_b[17:0];
    reg [8:0] memory [0:2047];
    integer i;
    initial for (i = 0; i < 2048; i = i + 1) memory[i] = INITIAL[(i / 32) * 320 + (i / 2 % 16) * 20 + i % 2 * 9 +: 9];

    reg [35:0] kept_a = 0;
    integer k_a;
    assign read_a = kept_a;
    wire [10:0] group_a = DATA_WIDTH_A == 36 ? {place_a[13:5], 2'b0} : DATA_WIDTH_A == 18 ? {place_a[13:4], 1'b0} : place_a[13:3];
    always @(posedge CLKA) begin
        if (CEA && WEA) begin
            for (k_a = 0; k_a < 4; k_a = k_a + 1)
                if (DATA_WIDTH_A >= 18 && k_a < DATA_WIDTH_A / 9 && place_a[k_a]) memory[group_a + k_a] <= data_a[9 * k_a +: 9];
            if (DATA_WIDTH_A == 9) memory[group_a] <= data_a[8:0];
            if (DATA_WIDTH_A == 4) memory[group_a][place_a[2] * 4 +: 4] <= data_a[3:0];
            if (DATA_WIDTH_A == 2) memory[group_a][place_a[2:1] * 2 +: 2] <= data_a[1:0];
            if (DATA_WIDTH_A == 1) memory[group_a][place_a[2:0]] <= data_a[0];
        end else if (CEA) begin
            if (DATA_WIDTH_A == 36) kept_a <= {memory[group_a + 3], memory[group_a + 2], memory[group_a + 1], memory[group_a]};
            if (DATA_WIDTH_A == 18) kept_a <= {memory[group_a + 1], memory[group_a]};
            if (DATA_WIDTH_A == 9) kept_a <= memory[group_a];
            if (DATA_WIDTH_A == 4) kept_a <= memory[group_a][place_a[2] * 4 +: 4];
            if (DATA_WIDTH_A == 2) kept_a <= memory[group_a][place_a[2:1] * 2 +: 2];
            if (DATA_WIDTH_A == 1) kept_a <= memory[group_a][place_a[2:0]];
        end
        if (RSTA) kept_a <= 0;
    end
    reg [35:0] kept_b = 0;
    integer k_b;
    assign read_b = kept_b;
    wire [10:0] group_b = DATA_WIDTH_B == 36 ? {place_b[13:5], 2'b0} : DATA_WIDTH_B == 18 ? {place_b[13:4], 1'b0} : place_b[13:3];
    always @(posedge CLKB) begin
        if (CEB && WEB) begin
            for (k_b = 0; k_b < 4; k_b = k_b + 1)
                if (DATA_WIDTH_B >= 18 && k_b < DATA_WIDTH_B / 9 && place_b[k_b]) memory[group_b + k_b] <= data_b[9 * k_b +: 9];
            if (DATA_WIDTH_B == 9) memory[group_b] <= data_b[8:0];
            if (DATA_WIDTH_B == 4) memory[group_b][place_b[2] * 4 +: 4] <= data_b[3:0];
            if (DATA_WIDTH_B == 2) memory[group_b][place_b[2:1] * 2 +: 2] <= data_b[1:0];
            if (DATA_WIDTH_B == 1) memory[group_b][place_b[2:0]] <= data_b[0];
        end else if (CEB) begin
            if (DATA_WIDTH_B == 36) kept_b <= {memory[group_b + 3], memory[group_b + 2], memory[group_b + 1], memory[group_b]};
            if (DATA_WIDTH_B == 18) kept_b <= {memory[group_b + 1], memory[group_b]};
            if (DATA_WIDTH_B == 9) kept_b <= memory[group_b];
            if (DATA_WIDTH_B == 4) kept_b <= memory[group_b][place_b[2] * 4 +: 4];
            if (DATA_WIDTH_B == 2) kept_b <= memory[group_b][place_b[2:1] * 2 +: 2];
            if (DATA_WIDTH_B == 1) kept_b <= memory[group_b][place_b[2:0]];
        end
        if (RSTB) kept_b <= 0;
    end
endmodule
