// build.mjs - the bundle in dist/, which is part of the program: committed, so that it is built
// without Node. make console makes it; the same sources give the same bytes.
import { copyFileSync } from "node:fs";
import { build } from "esbuild";

const options = /** @type {const} */ ({ bundle: true, minify: true, charset: "utf8", legalComments: "none", target: "es2022", logLevel: "warning", outdir: "dist" });
await build({ ...options, entryPoints: { console: "src/main.js" }, format: "esm" });
await build({ ...options, entryPoints: { console: "src/console.css" } });
copyFileSync("src/index.html", "dist/index.html");
