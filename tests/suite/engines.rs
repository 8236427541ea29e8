//! The engines with a model (L1, L3, L4).

mod pi;

mod pi_confinement;

mod pi_real;
