// All parts of the user interface, from one place.
export * from "./ui/icons.js";
export * from "./ui/form.js";
export * from "./ui/dialog.js";
export * from "./ui/parts.js";
export * from "./ui/table.js";
export * from "./ui/editor.js";
export * from "./format.js";
