"use strict";
// Light or dark: the system's choice until the button is used. Colours are numbers in the data, so that both themes have their own.
const TINTS = {
  light: ["#1f6fb4", "#cf4456", "#2b8a57", "#b07d00", "#7a4fb0", "#00838f", "#c2571a", "#6b7280", "#a3317a", "#557a1f"],
  dark: ["#6cb2ee", "#ff8a8a", "#6fd39b", "#f0c55a", "#c6a0ee", "#54d3e0", "#ffa366", "#b3bac5", "#f08cc8", "#b5d36a"],
};
const theme = {
  name: window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light",
  listeners: [],
  tint(index) {
    const tints = TINTS[this.name];
    return tints[index % tints.length];
  },
  variable(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  },
  set(name) {
    this.name = name;
    document.documentElement.dataset.theme = name;
    const button = document.getElementById("page-theme");
    button.textContent = name === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${name === "dark" ? "light" : "dark"} colours`);
    button.setAttribute("aria-pressed", String(name === "dark"));
    for (const listener of this.listeners) listener();
  },
};
theme.set(theme.name);
document.getElementById("page-theme").addEventListener("click", () => theme.set(theme.name === "dark" ? "light" : "dark"));
