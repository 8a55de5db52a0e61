// Signing in.

import { h, fill } from "../dom.js";
import { button, field, input, problem, toast } from "../ui.js";
import { signIn } from "../session.js";
import { go } from "../router.js";
import { text } from "../text.js";

export function login(ctx) {
  const name = input({ name: "username", autocomplete: "username", required: true, dataset: { focus: "" } });
  const password = input({ type: "password", name: "password", autocomplete: "current-password", required: true });
  const told = h("div");
  const submit = button(text.session.title.split(" ").slice(0, 2).join(" "), { kind: "primary", type: "submit" });
  const form = h("form", {
    class: "stack",
    onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      fill(told);
      try {
        await signIn(name.value, password.value);
        toast(text.session.signedIn(name.value));
        go(ctx.query.get("then") || "#/databases");
      } catch (error) {
        if (error.status === 401) Object.assign(error, { message: text.session.wrong, next: text.session.wrongNext });
        fill(told, problem(error));
        password.select();
      } finally {
        submit.disabled = false;
      }
    },
  }, field(text.session.name, name), field(text.session.password, password), told, submit);
  return h("div", { class: "login" }, h("section", { class: "card" }, h("h1", null, text.session.title), form));
}
