// The page of one client: PLD on request.
import { $, ask, complain, epsilon } from "./page.js";

$("ask-pld").addEventListener("click", async () => {
  $("ask-pld").disabled = true;
  try {
    const found = await ask(`/ledger/pld?${new URLSearchParams({ client: $("client").dataset.client })}`);
    $("pld").textContent = epsilon(found.epsilon_pld);
    complain();
  } catch (error) {
    complain(error.message);
  }
  $("ask-pld").disabled = false;
});
