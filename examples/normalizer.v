// SPDX-FileCopyrightText: 2026 The HAAN developers
// SPDX-License-Identifier: Apache-2.0

// haan_axi by name, with the fields of TUSER as ports of their own and the reset brought to the clock.
// The defaults are the preset ecp5's; docs/integration.md says how they follow from a configuration.
module normalizer #(
    parameter B = 16,  // bytes of TDATA
    parameter I = 3,   // bits of TID
    parameter T = 10   // bits of the token slot
) (
    input  wire           clk,
    input  wire           reset_n,

    // Rows in
    input  wire [8*B-1:0] x_data,
    input  wire [B-1:0]   x_keep,
    input  wire           x_last,
    input  wire [I-1:0]   x_layer,
    input  wire [T-1:0]   x_token,
    input  wire           x_valid,
    output wire           x_ready,

    // Rows out
    output wire [8*B-1:0] y_data,
    output wire [B-1:0]   y_keep,
    output wire           y_last,
    output wire [I-1:0]   y_layer,
    output wire [T-1:0]   y_token,
    output wire [15:0]    y_flags,
    output wire           y_valid,
    input  wire           y_ready,

    // Registers
    input  wire [11:0]    awaddr,
    input  wire           awvalid,
    output wire           awready,
    input  wire [31:0]    wdata,
    input  wire [3:0]     wstrb,
    input  wire           wvalid,
    output wire           wready,
    output wire [1:0]     bresp,
    output wire           bvalid,
    input  wire           bready,
    input  wire [11:0]    araddr,
    input  wire           arvalid,
    output wire           arready,
    output wire [31:0]    rdata,
    output wire [1:0]     rresp,
    output wire           rvalid,
    input  wire           rready
);
    // reset_n may change at any time; aresetn changes with the clock.
    reg [1:0] resetn;
    always @(posedge clk) resetn <= {resetn[0], reset_n};

    haan_axi haan (
        .aclk(clk),
        .aresetn(resetn[1]),

        .s_axis_tdata(x_data),
        .s_axis_tkeep(x_keep),
        .s_axis_tlast(x_last),
        .s_axis_tid(x_layer),
        .s_axis_tuser({32'h3f800000, x_token}),  // scale 1.0: FP16 rows have none
        .s_axis_tvalid(x_valid),
        .s_axis_tready(x_ready),

        .m_axis_tdata(y_data),
        .m_axis_tkeep(y_keep),
        .m_axis_tlast(y_last),
        .m_axis_tid(y_layer),
        .m_axis_tuser({y_flags, y_token}),
        .m_axis_tvalid(y_valid),
        .m_axis_tready(y_ready),

        .s_axil_awaddr(awaddr),
        .s_axil_awprot(3'b000),
        .s_axil_awvalid(awvalid),
        .s_axil_awready(awready),
        .s_axil_wdata(wdata),
        .s_axil_wstrb(wstrb),
        .s_axil_wvalid(wvalid),
        .s_axil_wready(wready),
        .s_axil_bresp(bresp),
        .s_axil_bvalid(bvalid),
        .s_axil_bready(bready),
        .s_axil_araddr(araddr),
        .s_axil_arprot(3'b000),
        .s_axil_arvalid(arvalid),
        .s_axil_arready(arready),
        .s_axil_rdata(rdata),
        .s_axil_rresp(rresp),
        .s_axil_rvalid(rvalid),
        .s_axil_rready(rready)
    );
endmodule
